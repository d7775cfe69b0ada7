"""The picture decoder of Stable Diffusion in PyTorch: diffusers' `AutoencoderKL`."""

from typing import Any

import diffusers

from openxla.benchmark.models import shared_model
from openxla.benchmark.models.architectures import sd_vae
from openxla.benchmark.models.pt import diffusers_model
from openxla.benchmark.models.pt.tensors import as_tensor


class SdVaeModel(diffusers_model.DiffusersModel):
    """Input: latents [batch, 4, height, width]; output: pixels [batch, 3, height', width']."""

    architecture = sd_vae.ARCHITECTURE
    model_class = diffusers.AutoencoderKL
    unused = ("encoder", "quant_conv")

    def forward(self, latents: Any) -> Any:
        """Returns the pixels."""
        return self.model.decode(as_tensor(latents), return_dict=False)[0]


create_model = shared_model.creator(sd_vae.ARCHITECTURE, SdVaeModel)


if __name__ == "__main__":
    shared_model.run_once(create_model, **sd_vae.ARCHITECTURE.example)
