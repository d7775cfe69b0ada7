"""What a folder's code computes in double, for a run that its outputs are judged by."""

from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

_WIDE = {torch.float32: torch.float64, torch.complex64: torch.complex128}
# They give other numbers in double from the same seed; dropout gives the same.
_DRAW = {torch.rand, torch.randn, torch.rand_like, torch.randn_like, torch.normal, torch.bernoulli}
_DRAW |= {torch.multinomial, torch.Tensor.multinomial, torch.Tensor.bernoulli}
_DRAW_INTO = {
    *(torch.Tensor.normal_, torch.Tensor.uniform_, torch.Tensor.exponential_),
    *(torch.Tensor.log_normal_, torch.Tensor.cauchy_, torch.Tensor.geometric_),
}


class Widening(TorchFunctionMode):
    """Has code that names single precision (`dtype=torch.float`, `.float()`) use double.

    Random numbers are those of single precision: a run on others would be another computation.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Calls a function of PyTorch with each single type replaced."""
        named = kwargs or {}
        if func in _DRAW_INTO and args[0].dtype == torch.float64:
            return args[0].copy_(func(args[0].float(), *args[1:], **named))
        if func in _DRAW:
            return _drawn(func, args, named)
        if func is torch.Tensor.float:
            func = torch.Tensor.double
        given = [_WIDE.get(item, item) if isinstance(item, torch.dtype) else item for item in args]
        named = {
            name: _WIDE.get(item, item) if isinstance(item, torch.dtype) else item
            for name, item in named.items()
        }
        return func(*given, **named)


def _drawn(func: Any, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """Returns random numbers as single precision has them, in double."""
    into = named.pop("out", None)
    args, named = pytree.tree_map_only(torch.Tensor, _narrow, (args, named))
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        drawn = func(*args, **named)
    finally:
        torch.set_default_dtype(before)
    wide = drawn.to(_WIDE.get(drawn.dtype, drawn.dtype))
    return wide if into is None else into.copy_(wide)


def _narrow(value: torch.Tensor) -> torch.Tensor:
    return value.float() if value.dtype == torch.float64 else value
