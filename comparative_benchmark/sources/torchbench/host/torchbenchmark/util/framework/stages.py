"""Stages of a training step, for all factories."""

from typing import Any

import torch


class Stages:
    """The stages behind `forward`, which a factory's class has itself."""

    optimizer: Any

    def backward(self, losses: torch.Tensor) -> None:
        """Computes gradients."""
        losses.backward()

    def optimizer_step(self) -> None:
        """Updates the weights."""
        self.optimizer.step()
