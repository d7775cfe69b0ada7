"""Folders of torchvision's models."""

import contextlib
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import torch

from ...model import BenchmarkModel
from .. import Stages


class TorchVisionModel(Stages, BenchmarkModel):
    """A picture classifier by its name in torchvision.

    Its weights come from the seed, whatever `weights` is: a checkpoint would have to be fetched,
    and no time depends on it.
    """

    TORCHVISION_MODEL = True

    def __init__(
        self,
        model_name: str,
        test: str | None = None,
        device: str | None = None,
        batch_size: int | None = None,
        weights: Any = None,
        extra_args: Sequence[str] = (),
        train_bs: int | None = None,
        eval_bs: int | None = None,
        **_: Any,
    ) -> None:
        asked = self.asked(test, batch_size, train_bs, eval_bs)
        super().__init__(device=device, extra_args=extra_args, **asked)
        self.model = getattr(import_module("torchvision.models"), model_name)().to(device)
        self.example_inputs = (torch.randn((self.batch_size, 3, 224, 224)).to(device),)
        self.amp_context = contextlib.nullcontext
        if self.test == "train":
            with torch.no_grad():
                classes = self.model(self.example_inputs[0][:2]).shape[-1]
            self.example_outputs = torch.rand((self.batch_size, classes)).to(device)
            self.model.train()
            self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)
            self.loss_fn = torch.nn.CrossEntropyLoss()
        else:
            self.model.eval()

    def get_module(self) -> tuple[torch.nn.Module, tuple[torch.Tensor]]:
        """Returns the module and pictures f32[batch, 3, 224, 224]."""
        return self.model, self.example_inputs

    def forward(self) -> torch.Tensor:
        """Returns the loss of the example."""
        with self.amp_context():
            scores = self.model(*self.example_inputs)
        loss: torch.Tensor = self.loss_fn(scores, self.example_outputs)
        return loss

    def eval(self, niter: int = 1) -> tuple[torch.Tensor]:
        """Returns scores f32[batch, classes]."""
        with self.amp_context():
            return (self.model(*self.example_inputs),)
