"""Whisper in PyTorch: transformers' `WhisperForConditionalGeneration`, a single forward pass."""

from typing import Any

import torch
import transformers

from openxla.benchmark.def_types import Parameters
from openxla.benchmark.models import shared_model
from openxla.benchmark.models.architectures import whisper
from openxla.benchmark.models.pt import hugging_face
from openxla.benchmark.models.pt.tensors import as_tensor


class WhisperModel(torch.nn.Module, shared_model.ArchitectureModel):
    """Inputs: input_features [batch, 80, frames], decoder_input_ids int32[batch, seq].

    Output: logits [batch, seq, vocab].
    """

    def __init__(self, parameters: Parameters) -> None:
        super().__init__()
        self.set_architecture(whisper.ARCHITECTURE, parameters)
        self.model = hugging_face.load(
            transformers.WhisperForConditionalGeneration,
            self.checkpoint,
            str(parameters["data_type"]),
        )
        self.eval().requires_grad_(False)

    def forward(self, input_features: Any, decoder_input_ids: Any) -> Any:
        """Returns the logits of the token after each."""
        return self.model(
            input_features=as_tensor(input_features),
            decoder_input_ids=as_tensor(decoder_input_ids),
            use_cache=False,
        ).logits


def create_model(
    batch_size: int = 1,
    data_type: str = "fp32",
    seq_len: int = 64,
    model_name: str = "openai/whisper-tiny",
    **parameters: Any,
) -> WhisperModel:
    """Returns Whisper on the checkpoint of `model_name`.

    Further parameter: `seed` of the checkpoint.
    """
    return WhisperModel(
        {
            "batch_size": batch_size,
            "data_type": data_type,
            "seq_len": seq_len,
            "model_name": model_name,
            **parameters,
        }
    )


if __name__ == "__main__":
    shared_model.run_once(
        create_model, batch_size=1, data_type="fp32", seq_len=16, model_name="whisper-tiny-test"
    )
