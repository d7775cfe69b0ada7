"""Folders that edit pictures by a text."""

from importlib import import_module
from typing import Any

import torch

from ...model import BenchmarkModel


class DiffuserModel(BenchmarkModel):
    """A pipeline of diffusers by its name on the hub."""

    DIFFUSER_MODEL = True

    def __init__(
        self, name: str, test: str, device: str, batch_size: int | None = None, **_: Any
    ) -> None:
        super().__init__(test=test, device=device, batch_size=batch_size)
        if device == "cpu":
            raise NotImplementedError(f"{name} does not support the CPU")
        diffusers = import_module("diffusers")
        pipe = diffusers.StableDiffusionInstructPix2PixPipeline.from_pretrained(
            name, torch_dtype=torch.float32, safety_checker=None
        )
        self.pipe = pipe.to(device)
        self.example_inputs = torch.randn(self.batch_size, 3, 128, 128).to(device)

    def eval(self, niter: int = 1) -> Any:
        """Returns pictures."""
        edited = self.pipe("turn him into cyborg", image=self.example_inputs, output_type="pt")
        return (edited.images,)
