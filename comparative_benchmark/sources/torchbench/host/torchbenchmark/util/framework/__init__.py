"""Base class of folders' models, and a check of the memory that a model needs."""

from collections.abc import Callable
from typing import Any

import torch

from comparative_benchmark.backends.host_settings import free_bytes

# Memory of a folder's test, in multiples of its weights. A second model, widened to float64,
# verifies the first. Training also holds gradients, Adam's two moments and the initial weights.
_TIMES = {"eval": 3, "train": 12}
_GIB = 2**30


def refuse_without_memory(make: Callable[[], torch.nn.Module], test: str, device: str) -> None:
    """Makes a model without storage, to see how large it is.

    Raises:
      NotImplementedError: there is not the memory for what its test needs.
    """
    if device != "cpu":  # its own out-of-memory error comes at once
        return
    with torch.device("meta"):
        model = make()
    weights = sum(value.numel() * value.element_size() for value in model.parameters())
    needed, free = weights * _TIMES[test], free_bytes()
    if needed > free:
        raise NotImplementedError(
            f"memory: {needed / _GIB:.0f} GiB needed, but only {free / _GIB:.0f} GiB free; the "
            f"weights take {weights / _GIB:.1f} GiB, and {test} with verification takes "
            f"{_TIMES[test]} times as much"
        )


class Stages:
    """The stages after `forward`, which the factory's class defines."""

    optimizer: Any

    def backward(self, losses: torch.Tensor) -> None:
        """Computes gradients."""
        losses.backward()

    def optimizer_step(self) -> None:
        """Updates the weights."""
        self.optimizer.step()
