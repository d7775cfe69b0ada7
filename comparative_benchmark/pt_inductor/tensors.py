"""Tensors to arrays, for PyTorch."""

from typing import Any

import ml_dtypes
import torch

from comparative_benchmark.backends.api import Array


def to_numpy(value: Any) -> Array:
    """Returns a tensor as an array on the host; bfloat16 through its bits.

    Raises:
      TypeError: the value is no tensor.
    """
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"forward gave a {type(value).__name__}, which is no tensor")
    host = value.detach().cpu().contiguous()
    if host.dtype == torch.bfloat16:
        bits: Array = host.view(torch.int16).numpy()
        return bits.view(ml_dtypes.bfloat16)
    array: Array = host.numpy()
    return array
