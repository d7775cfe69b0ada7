"""Runs a PyTorch model in a coarser precision than its own, to imitate a wrong program.

A stack that computes in a coarser type rounds at least the factors of its products. So the factors
of every matrix product and convolution are rounded here, and nothing else. The error of a program
that rounds more is larger.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

# Arguments: a factor, and whether it is a weight, which has a scale for each output channel.
Rounding = Callable[[torch.Tensor, bool], torch.Tensor]

# Position of the two factors among the arguments of a product.
_FACTORS: Mapping[str, tuple[int, int]] = {
    "mm": (0, 1),
    "bmm": (0, 1),
    "addmm": (1, 2),
    "baddbmm": (1, 2),
    "convolution": (0, 1),
}
# Fused attention, as products that can be rounded.
_FUSED = "scaled_dot_product"


def tf32(value: torch.Tensor, _: bool) -> torch.Tensor:
    """Rounds the mantissa of float32 to ten bits, to nearest, ties to even."""
    bits = value.float().view(torch.int32)
    rounded = bits + 0xFFF + ((bits >> 13) & 1)
    return (rounded & ~0x1FFF).view(torch.float32).to(value.dtype)


def bf16(value: torch.Tensor, _: bool) -> torch.Tensor:
    """Rounds to bfloat16."""
    return value.to(torch.bfloat16).to(value.dtype)


def fp8(value: torch.Tensor, is_weight: bool) -> torch.Tensor:
    """Rounds to float8 e4m3, scaled to its range: weights by output channel, others as a whole."""
    largest = torch.finfo(torch.float8_e4m3fn).max
    wide = value.float()
    scale = _largest(wide, is_weight) / largest
    return ((wide / scale).to(torch.float8_e4m3fn).float() * scale).to(value.dtype)


def int8(value: torch.Tensor, is_weight: bool) -> torch.Tensor:
    """Rounds to 8 bits: weights by output channel, activations as a whole."""
    wide = value.float()
    scale = _largest(wide, is_weight) / 127
    return (torch.round(wide / scale).clamp(-127, 127) * scale).to(value.dtype)


# The coarser precisions of each type, the finest first.
COARSER: Mapping[str, Mapping[str, Rounding]] = {
    "fp32": {"tf32": tf32, "bf16": bf16},
    "fp16": {"bf16": bf16, "int8": int8},
    "bf16": {"int8": int8, "fp8": fp8},
}


class Coarser(TorchDispatchMode):
    """While active, rounds the factors of all products; counts them in `products`."""

    def __init__(self, rounding: Rounding) -> None:
        super().__init__()
        self._rounding = rounding
        self.products = 0

    def __torch_dispatch__(
        self, function: Any, types: Any, arguments: tuple[Any, ...] = (), keywords: Any = None
    ) -> Any:
        name = function.overloadpacket.__name__
        if _FUSED in name:
            raise RuntimeError(f"{name} is fused: run the model with `math_attention`")
        if name in _FACTORS:
            self.products += 1
            changed = list(arguments)
            first, second = _FACTORS[name]
            changed[first] = self._rounding(arguments[first], False)
            is_weight = name in ("addmm", "mm", "convolution")
            factor = arguments[second]
            # Output channels: the rows of a convolution's weight, the columns of a matrix.
            if is_weight and name != "convolution":
                factor = self._rounding(factor.t(), True).t()
            else:
                factor = self._rounding(factor, is_weight)
            changed[second] = factor
            arguments = tuple(changed)
        return function(*arguments, **(keywords or {}))


def math_attention() -> Any:
    """Computes attention with plain products while the context is active."""
    return torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH)


def _largest(value: torch.Tensor, by_channel: bool) -> torch.Tensor:
    """Returns the largest magnitude per first index, or of the whole tensor; never 0."""
    magnitude = value.abs()
    if by_channel:
        magnitude = magnitude.amax(dim=tuple(range(1, value.dim())), keepdim=True)
    else:
        magnitude = magnitude.amax()
    return magnitude.clamp(min=torch.finfo(torch.float32).tiny)
