"""The text encoder of Stable Diffusion in PyTorch: transformers' `CLIPTextModel`."""

from typing import Any

import transformers

from openxla.benchmark.models import shared_model
from openxla.benchmark.models.architectures import sd_clip
from openxla.benchmark.models.pt import hugging_face
from openxla.benchmark.models.pt.tensors import as_tensor


class SdClipModel(hugging_face.HuggingFaceModel):
    """Input: input_ids, int32[batch, seq]; output: [batch, seq, hidden]."""

    architecture = sd_clip.ARCHITECTURE
    model_class = transformers.CLIPTextModel

    def forward(self, input_ids: Any) -> Any:
        """Returns the last hidden state."""
        return self.model(input_ids=as_tensor(input_ids)).last_hidden_state


create_model = shared_model.creator(sd_clip.ARCHITECTURE, SdClipModel)


if __name__ == "__main__":
    shared_model.run_once(create_model, **sd_clip.ARCHITECTURE.example)
