"""The text encoder of Stable Diffusion in PyTorch: transformers' `CLIPTextModel`."""

from typing import Any

import torch
import transformers

from openxla.benchmark.def_types import Parameters
from openxla.benchmark.models import shared_model
from openxla.benchmark.models.architectures import sd_clip
from openxla.benchmark.models.pt import hugging_face
from openxla.benchmark.models.pt.tensors import as_tensor


class SdClipModel(torch.nn.Module, shared_model.ArchitectureModel):
    """Input: input_ids, int32[batch, seq]; output: [batch, seq, hidden]."""

    def __init__(self, parameters: Parameters) -> None:
        super().__init__()
        self.set_architecture(sd_clip.ARCHITECTURE, parameters)
        self.model = hugging_face.load(
            transformers.CLIPTextModel, self.checkpoint, str(parameters["data_type"])
        )
        self.eval().requires_grad_(False)

    def forward(self, input_ids: Any) -> Any:
        """Returns the last hidden state."""
        return self.model(input_ids=as_tensor(input_ids)).last_hidden_state


def create_model(
    batch_size: int = 1,
    data_type: str = "fp32",
    seq_len: int = 77,
    model_name: str = "sd-clip",
    **parameters: Any,
) -> SdClipModel:
    """Returns the text encoder on the checkpoint of `model_name`.

    Further parameter: `seed` of the checkpoint.
    """
    return SdClipModel(
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
        create_model, batch_size=1, data_type="fp32", seq_len=32, model_name="sd-clip-tiny"
    )
