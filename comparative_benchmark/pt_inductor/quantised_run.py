"""A plain run of a PyTorch model that rounds as a recipe does."""

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from comparative_benchmark.backends.frameworks import torch_modules as modules
from comparative_benchmark.backends.recipes.rounding import Grid, Rounding, rounded

_ATEN = torch.ops.aten
# Positions of the two factors among the arguments, and the axes that each is summed over.
_PRODUCTS = {
    _ATEN.linear: ((0, (-1,)), (1, (-1,))),
    _ATEN.mm: ((0, (1,)), (1, (0,))),
    _ATEN.addmm: ((1, (1,)), (2, (0,))),
    _ATEN.bmm: ((0, (2,)), (1, (1,))),
    _ATEN.baddbmm: ((1, (2,)), (2, (1,))),
}


class QuantisedRun(TorchDispatchMode):
    """Rounds the factors of products with weights while it is active.

    A factor is a weight if it lies in the memory of a parameter or buffer.
    """

    def __init__(self, model: Any, rounding: Rounding) -> None:
        super().__init__()
        self._rounding = rounding
        self._weights = {
            tensor.untyped_storage().data_ptr()
            for module in modules.of(model)
            for tensor in (*module.parameters(), *module.buffers())
        }

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        args = list(args)
        packet = function.overloadpacket
        if packet in _PRODUCTS:
            self._round_factors(args, _PRODUCTS[packet])
        elif packet is _ATEN.convolution and self._rounding.convolutions:
            every = tuple(range(1, args[1].ndim))
            self._round_factors(args, ((0, every), (1, every)))
        outputs = function(*args, **(kwargs or {}))
        if self._rounding.outputs is not None and not function.is_view:
            return tree_map_only(
                torch.Tensor, lambda value: _rounded(value, self._rounding.outputs, None), outputs
            )
        return outputs

    def _round_factors(
        self, args: list[Any], factors: Sequence[tuple[int, tuple[int, ...]]]
    ) -> None:
        held = [self._is_weight(args[place]) for place, _ in factors]
        if not any(held):
            return
        for is_weight, (place, axes) in zip(held, factors, strict=True):
            grid = self._rounding.weights if is_weight else self._rounding.activations
            args[place] = _rounded(args[place], grid, axes)

    def _is_weight(self, tensor: torch.Tensor) -> bool:
        return tensor.untyped_storage().data_ptr() in self._weights


def _rounded(tensor: torch.Tensor, grid: Grid | None, axes: Sequence[int] | None) -> torch.Tensor:
    if grid is None or not tensor.is_floating_point():
        return tensor
    values = tensor.detach().float().numpy()
    axes = tuple(range(values.ndim)) if axes is None else axes
    return torch.from_numpy(rounded(values, grid, axes).copy()).to(tensor.dtype)
