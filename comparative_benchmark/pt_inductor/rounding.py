"""Where a PyTorch model rounds although its weights are float64, which its truth then shows.

It may round numbers of float64, or compute in a narrower type what it makes itself, e.g. a table.
"""

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from comparative_benchmark.backends import torch_modules as modules
from comparative_benchmark.backends.api import Array
from openxla.benchmark.models.pt.tensors import as_tensor


def remark(model: Any, inputs: Sequence[Array]) -> str | None:
    """Returns what the float64 run of a model rounds, in words; None if nothing.

    The run is on tensors without content: nothing is computed.

    Raises:
      Exception: what the model raises where it looks at values, which are not there.
    """
    fake = FakeTensorMode(allow_non_fake_inputs=True)

    def wide(tensor: torch.Tensor) -> torch.Tensor:
        found = fake.from_tensor(tensor.detach())
        return found.double() if found.is_floating_point() else found

    with torch.no_grad():
        copies: dict[int, Any] = {}
        for module in modules.of(model):
            for tensor in module.parameters():
                copies[id(tensor)] = torch.nn.Parameter(wide(tensor), requires_grad=False)
            copies |= {id(tensor): wide(tensor) for tensor in module.buffers()}
        # Before the mode is on, in which a tensor of another kind could not be copied.
        without_content = copy.deepcopy(model, copies)
        given = [wide(as_tensor(value)) for value in inputs]
        with fake, _Roundings() as found:
            without_content.forward(*given)
    if not found.seen:
        return None
    return (
        f"parts of it compute in {', '.join(sorted(found.seen))}, whatever the type of its weights"
    )


# Operations that move numbers, or make exact ones, and round nothing.
_EXACT = frozenset(
    f"aten::{name}"
    for name in (
        *("_to_copy", "_unsafe_view", "abs", "cat", "clone", "constant_pad_nd", "copy", "copy_"),
        *("fill", "fill_", "flip", "full_like", "gather", "index", "index_put", "index_put_"),
        *("index_select", "masked_fill", "masked_fill_", "maximum", "minimum", "neg", "ones_like"),
        *("relu", "repeat", "roll", "scatter", "stack", "tril", "triu", "where", "zeros_like"),
        *("lift_fresh", "lift_fresh_copy", "new_zeros", "new_ones", "new_empty", "empty_like"),
    )
)


class _Roundings(TorchDispatchMode):
    """Notes the types that numbers of float64 are rounded to, or that others are computed in."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        given, narrow = _types((args, kwargs)), _types(result) - {torch.float64}
        computes = not func.is_view and func._schema.name not in _EXACT  # noqa: SLF001
        if torch.float64 in given or (given and computes):
            self.seen |= {str(dtype).removeprefix("torch.") for dtype in narrow}
        return result


def _types(values: Any) -> set[torch.dtype]:
    return {
        value.dtype
        for value in tree_leaves(values)
        if isinstance(value, torch.Tensor) and value.is_floating_point()
    }
