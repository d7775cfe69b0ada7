"""The denoiser of Stable Diffusion in PyTorch: diffusers' `UNet2DConditionModel`."""

from collections.abc import Sequence
from typing import Any

import diffusers
import torch

from openxla.benchmark.def_types import Parameters
from openxla.benchmark.models import shared_model
from openxla.benchmark.models.architectures import sd_unet
from openxla.benchmark.models.pt import diffusers_model
from openxla.benchmark.models.pt.tensors import as_tensor


class TimestepEmbedding(torch.nn.Module):
    """Cosines and sines of the timestep, in the type of the timestep.

    diffusers' own embedding computes in float32 even in a float64 model.
    """

    def __init__(self, frequencies: Sequence[float]) -> None:
        super().__init__()
        # Kept in float64 and rounded when used, because it is not a weight of the model.
        exact = torch.tensor(frequencies, dtype=torch.float64)
        self.frequencies = torch.nn.Buffer(exact, persistent=False)

    def forward(self, timesteps: torch.Tensor) -> torch.Tensor:
        """[batch] -> [batch, 2 * frequencies]."""
        angles = timesteps[:, None] * self.frequencies.to(timesteps.dtype)
        return torch.cat((angles.cos(), angles.sin()), dim=-1)


class SdUnetModel(diffusers_model.DiffusersModel):
    """Inputs: latents [batch, 4, size, size], timesteps int32[batch], text [batch, 77, context].

    Output: the predicted noise, of the latents' shape.
    """

    architecture = sd_unet.ARCHITECTURE
    model_class = diffusers.UNet2DConditionModel

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(parameters)
        config = self.architecture.config_of(parameters)
        self.model.time_proj = TimestepEmbedding(sd_unet.timestep_frequencies(config))

    def forward(self, latents: Any, timesteps: Any, text: Any) -> Any:
        """Returns the predicted noise."""
        latents, text = as_tensor(latents), as_tensor(text)
        wide = torch.promote_types(latents.dtype, torch.float32)
        return self.model(latents, as_tensor(timesteps).to(wide), text, return_dict=False)[0]


create_model = shared_model.creator(sd_unet.ARCHITECTURE, SdUnetModel)


if __name__ == "__main__":
    shared_model.run_once(create_model, **sd_unet.ARCHITECTURE.example)
