"""Tensors of PyTorch models: type names, conversion of arrays and weights, and modules for float64.

Parts of transformers' models compute in float32 even in float64 models. This is intended for 16-bit
and float32 models, but would cut the truth, a float64 run, to seven digits. The replacements here
support float64 and are otherwise the same.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import torch

TORCH_DTYPES: Mapping[str, torch.dtype] = MappingProxyType(
    {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
)


def at_least_float32(dtype: torch.dtype) -> torch.dtype:
    """Returns float32 for the 16-bit types, other types unchanged."""
    return torch.promote_types(dtype, torch.float32)


class RmsNorm(torch.nn.Module):
    """Root mean square norm (Zhang and Sennrich 2019, arXiv:1910.07467).

    `around_one`: Gemma scales by 1 + weight before the result is rounded to the model's type; Llama
    scales by the weight after.
    """

    def __init__(self, weight: torch.nn.Parameter, epsilon: float, *, around_one: bool) -> None:
        super().__init__()
        self.weight = weight
        self.epsilon = epsilon
        self.around_one = around_one

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[..., hidden], same shape and type out."""
        wide = x.to(at_least_float32(x.dtype))
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.epsilon)
        if self.around_one:
            return (wide * (1.0 + self.weight.to(wide.dtype))).to(x.dtype)
        return self.weight * wide.to(x.dtype)


class RotaryEmbedding(torch.nn.Module):
    """Cosines and sines of rotary position embedding, from angles per position."""

    def __init__(self, frequencies: Sequence[float]) -> None:
        super().__init__()
        # Kept in float64 and rounded when used, because it is not a weight of the model.
        exact = torch.tensor(frequencies, dtype=torch.float64)
        self.frequencies = torch.nn.Buffer(exact, persistent=False)

    def forward(
        self, x: torch.Tensor, position_ids: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """position_ids [batch, seq] -> two of [batch, seq, head_dim], of the type of x."""
        wide = at_least_float32(x.dtype)
        angles = position_ids[..., None].to(wide) * self.frequencies.to(wide)
        angles = torch.cat((angles, angles), dim=-1)
        return angles.cos().to(x.dtype), angles.sin().to(x.dtype)


def as_tensor(value: Any) -> torch.Tensor:
    """Returns a tensor with the content of an array; bfloat16 through its bits.

    Tensors are returned unchanged, so that `forward` also takes the results of `preprocess`.
    """
    if isinstance(value, torch.Tensor):
        return value
    # `np.ascontiguousarray` would add a dimension to a scalar.
    array = np.asarray(value, order="C")
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(array if array.flags.writeable else array.copy())


def load_weights(module: torch.nn.Module, tensors: Mapping[str, Any], data_type: str) -> None:
    """Loads the weights of a checkpoint into a module, cast to `data_type`.

    Raises:
      RuntimeError: weights are missing, surplus, or of another shape.
    """
    dtype = TORCH_DTYPES[data_type]
    state = {name: as_tensor(tensor).to(dtype) for name, tensor in tensors.items()}
    module.load_state_dict(state, strict=True, assign=True)
