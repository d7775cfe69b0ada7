"""Folders of timm's models."""

import contextlib
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import torch

from ...model import BenchmarkModel
from .. import Stages


class TimmModel(Stages, BenchmarkModel):
    """A picture classifier by its name in timm, with weights from the seed."""

    TIMM_MODEL = True

    def __init__(
        self,
        model_name: str,
        test: str | None = None,
        device: str | None = None,
        batch_size: int | None = None,
        extra_args: Sequence[str] = (),
        train_bs: int | None = None,
        eval_bs: int | None = None,
        **_: Any,
    ) -> None:
        asked = self.asked(test, batch_size, train_bs, eval_bs)
        super().__init__(device=device, extra_args=extra_args, **asked)
        timm = import_module("timm")
        self.model = timm.create_model(model_name, pretrained=False, scriptable=True).to(device)
        size = self.model.default_cfg["input_size"]
        self.example_inputs = torch.randn((self.batch_size, *size)).to(device)
        self.amp_context = contextlib.nullcontext
        if self.test == "train":
            self.model.train()
            classes = self.model.num_classes
            self.target = torch.randint(0, classes, (self.batch_size,)).to(device)
            self.optimizer = import_module("timm.optim").create_optimizer_v2(
                self.model, opt="sgd", lr=1e-4, weight_decay=1e-4, momentum=0.9
            )
            self.loss_fn = torch.nn.CrossEntropyLoss()
        else:
            self.model.eval()

    def get_module(self) -> tuple[torch.nn.Module, tuple[torch.Tensor]]:
        """Returns the module and pictures."""
        return self.model, (self.example_inputs,)

    def forward(self) -> torch.Tensor:
        """Returns the loss of the example."""
        with self.amp_context():
            scores = self.model(self.example_inputs)
        scores = scores[0] if isinstance(scores, tuple) else scores
        loss: torch.Tensor = self.loss_fn(scores, self.target)
        return loss

    def eval(self, niter: int = 1) -> tuple[torch.Tensor]:
        """Returns scores f32[batch, classes]."""
        with self.amp_context():
            return (self.model(self.example_inputs),)
