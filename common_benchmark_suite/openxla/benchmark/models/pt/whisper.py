"""Whisper in PyTorch: transformers' `WhisperForConditionalGeneration`, a single forward pass."""

from typing import Any

import transformers

from openxla.benchmark.models import shared_model
from openxla.benchmark.models.architectures import whisper
from openxla.benchmark.models.pt import hugging_face
from openxla.benchmark.models.pt.tensors import as_tensor


class WhisperModel(hugging_face.HuggingFaceModel):
    """Inputs: input_features [batch, 80, frames], decoder_input_ids int32[batch, seq].

    Output: logits [batch, seq, vocab].
    """

    architecture = whisper.ARCHITECTURE
    model_class = transformers.WhisperForConditionalGeneration

    def forward(self, input_features: Any, decoder_input_ids: Any) -> Any:
        """Returns the logits of the token after each."""
        return self.model(
            input_features=as_tensor(input_features),
            decoder_input_ids=as_tensor(decoder_input_ids),
            use_cache=False,
        ).logits


create_model = shared_model.creator(whisper.ARCHITECTURE, WhisperModel)


if __name__ == "__main__":
    shared_model.run_once(create_model, **whisper.ARCHITECTURE.example)
