"""The torch modules inside a model, and tensors as arrays."""

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import torch

from comparative_benchmark.backends.api import Array


def of(model: Any) -> Iterator[torch.nn.Module]:
    """Yields the model if it is a module, else the modules among its attributes."""
    if isinstance(model, torch.nn.Module):
        yield model
    else:
        yield from (value for value in vars(model).values() if isinstance(value, torch.nn.Module))


def element_types(model: Any) -> frozenset[str]:
    """Returns the NumPy names of the element types of a model's parameters and buffers."""
    return frozenset(
        str(tensor.dtype).removeprefix("torch.")
        for module in of(model)
        for tensor in (*module.parameters(), *module.buffers())
    )


class _Forward(torch.nn.Module):
    """The `forward` of a model that is not a module, with the modules that it uses."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.parts = torch.nn.ModuleList(of(model))
        self._forward = model.forward

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self._forward(*inputs)


def as_module(model: Any) -> torch.nn.Module:
    """Returns the model as one module, for exporters that accept nothing else."""
    return model if isinstance(model, torch.nn.Module) else _Forward(model)


def to_numpy(value: Any) -> Array:
    """Returns a tensor as an array on the host; bfloat16 is copied as bits.

    Raises:
      TypeError: the value is not a tensor, or its class may compute when it is read, which would
        not be timed.
    """
    if type(value) not in (torch.Tensor, torch.nn.Parameter):
        raise TypeError(f"forward gave a {type(value).__name__}, which is not a plain tensor")
    host = value.detach().cpu().contiguous()
    if host.dtype == torch.bfloat16:
        bits: Array = host.view(torch.int16).numpy()
        return bits.view(ml_dtypes.bfloat16)
    array: Array = host.numpy()
    return array
