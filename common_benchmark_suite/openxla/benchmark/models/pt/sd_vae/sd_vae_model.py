"""The picture decoder of Stable Diffusion in PyTorch: diffusers' `AutoencoderKL`."""

from typing import Any

import diffusers
import torch

from openxla.benchmark.def_types import Parameters
from openxla.benchmark.models import shared_model
from openxla.benchmark.models.architectures import sd_vae
from openxla.benchmark.models.pt import diffusers_model
from openxla.benchmark.models.pt.tensors import as_tensor


class SdVaeModel(torch.nn.Module, shared_model.ArchitectureModel):
    """Input: latents [batch, 4, height, width]; output: pixels [batch, 3, height', width']."""

    def __init__(self, parameters: Parameters) -> None:
        super().__init__()
        self.set_architecture(sd_vae.ARCHITECTURE, parameters)
        self.model = diffusers_model.build(diffusers.AutoencoderKL, self.checkpoint)
        # The encoder takes no part: it would cost load time and memory.
        del self.model.encoder, self.model.quant_conv
        diffusers_model.load_weights(self.model, self.checkpoint, str(parameters["data_type"]))
        self.eval().requires_grad_(False)

    def forward(self, latents: Any) -> Any:
        """Returns the pixels."""
        return self.model.decode(as_tensor(latents), return_dict=False)[0]


create_model = shared_model.creator(sd_vae.ARCHITECTURE, SdVaeModel)


if __name__ == "__main__":
    shared_model.run_once(create_model, **sd_vae.ARCHITECTURE.example)
