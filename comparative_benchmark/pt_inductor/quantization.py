"""Recipes of a PyTorch model: applied by torchao to its linear layers, or repeated in a plain run.

torchao silently skips a layer that a recipe does not fit. So the class of each layer's weight is
checked afterwards, and the bytes of all weights are recorded. A plain run rounds as a recipe does,
so that its noise is known.
"""

from collections.abc import Container, Iterator, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass
from torch.utils._pytree import tree_map_only

from comparative_benchmark.backends.api import UnsupportedError
from comparative_benchmark.backends.frameworks import torch_modules as modules
from comparative_benchmark.backends.recipes import Chosen, NotAppliedError
from comparative_benchmark.backends.recipes.definition import Grid, Rounding, rounded
from openxla.benchmark.installation import install_command


def apply_recipe(model: Any, recipe: Chosen) -> dict[str, Any]:
    """Applies a recipe to all linear layers of a model on its device.

    Returns:
      A summary: `name`, the number of changed `layers` and of `linear` ones, the class of their
      weights, and the bytes of all weights of the model before and after.

    Raises:
      UnsupportedError: torchao cannot apply it here, or the model has no linear layer.
      NotAppliedError: it changed no layer.
    """
    try:
        from torchao.quantization import quantize_
    except ImportError as error:
        raise UnsupportedError(f"recipes need torchao: {install_command('recipes')}") from error
    for module in modules.of(model):
        _as_linear(module)
    linear = [part for root in modules.of(model) for part in _linear(root)]
    if not linear:
        raise UnsupportedError(f"{recipe.label} needs linear layers, but the model has none")
    before, states = _weight_bytes(model), _states(model)
    try:
        config, made = recipe.configuration_in("pt_inductor")
        # A recipe may return the class itself.
        weight_class = made.__name__ if isinstance(made, type) else made
        for module in modules.of(model):
            if callable(config):
                config(module)
            else:
                quantize_(module, config)
    except (AssertionError, ImportError, NotImplementedError, RuntimeError, ValueError) as error:
        if isinstance(error, torch.OutOfMemoryError) or "allocate memory" in str(error):
            raise
        raise UnsupportedError(
            f"torchao cannot apply {recipe.label}: {_first_line(error)}"
        ) from error
    if weight_class is None:
        changed, weight_class = _changes(model, recipe, states)
    else:
        # A recipe changes the class of weights, or replaces layers by layers of another class.
        linear = [part for root in modules.of(model) for part in _linear(root)]
        classes = [type(part).__name__ for part in linear]
        weight_classes = [
            name if name == weight_class else type(layer.weight).__name__
            for name, layer in zip(classes, linear, strict=True)
        ]
        changed = weight_classes.count(weight_class)
        if not changed:
            kinds = ", ".join(sorted(set(weight_classes)))
            raise NotAppliedError(
                f"{recipe.label} changed 0 of {len(linear)} linear layers: their weights are "
                f"{kinds}, not {weight_class}"
            )
    return {
        "name": recipe.label,
        "layers": changed,
        "linear": len(linear),
        "weight_class": weight_class,
        "bytes_before": before,
        "bytes_after": _weight_bytes(model),
    }


def _changes(
    model: Any, recipe: Chosen, before: dict[str, tuple[str, str, int, int]]
) -> tuple[int, str]:
    """Returns the number of changed layers, and the most frequent class of their weights.

    Raises:
      NotAppliedError: no linear layer changed.
    """
    after = _states(model, of=before)
    changed = [name for name, state in before.items() if after.get(name) != state]
    if not changed:
        raise NotAppliedError(f"{recipe.label} changed 0 of {len(before)} linear layers")
    classes = [after[name][1] for name in changed if name in after]
    return len(changed), max(set(classes), key=classes.count) if classes else "none"


def _states(model: Any, of: Container[str] | None = None) -> dict[str, tuple[str, str, int, int]]:
    """Returns, by name, the changeable facts of a linear layer: its class, and its weights."""
    states = {}
    for place, root in enumerate(modules.of(model)):
        for name, part in root.named_modules():
            key = f"{place}.{name}"
            if key in of if of is not None else isinstance(part, torch.nn.Linear):
                weight = getattr(part, "weight", None)
                stores = list(_plain(weight)) if isinstance(weight, torch.Tensor) else []
                pointer = stores[0].data_ptr() if stores else 0
                # torch has no public name for the number of writes to a tensor.
                version = stores[0]._version if stores else 0  # noqa: SLF001
                states[key] = (type(part).__name__, type(weight).__name__, pointer, version)
    return states


def _linear(root: torch.nn.Module) -> Iterator[torch.nn.Linear]:
    return (part for part in root.modules() if isinstance(part, torch.nn.Linear))


def _as_linear(root: torch.nn.Module) -> None:
    """Replaces transformers' `Conv1D`, a linear layer whose weight is transposed."""
    for parent in list(root.modules()):
        for name, part in list(parent.named_children()):
            kind = type(part)
            is_theirs = kind.__name__ == "Conv1D" and kind.__module__.startswith("transformers.")
            if not is_theirs or part.weight.ndim != 2:
                continue
            layer = torch.nn.Linear(*part.weight.shape, dtype=part.weight.dtype, device="meta")
            layer.weight = torch.nn.Parameter(part.weight.data.T.contiguous(), requires_grad=False)
            layer.bias = part.bias
            setattr(parent, name, layer.eval())


def _weight_bytes(model: Any) -> int:
    """Returns the bytes that parameters and buffers hold; shared ones count once."""
    stores = {
        part.untyped_storage().data_ptr(): part.untyped_storage().nbytes()
        for tensor in modules.tensors_of(model)
        for part in _plain(tensor)
    }
    return sum(stores.values())


def _plain(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yields the plain tensors inside a wrapper."""
    if not is_traceable_wrapper_subclass(tensor):
        yield tensor
        return
    names, _ = tensor.__tensor_flatten__()
    for name in names:
        yield from _plain(getattr(tensor, name))


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__


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
            for name, tensor in (*module.named_parameters(), *module.named_buffers())
            if rounding.spared is None or name.rpartition(".")[2] != rounding.spared
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
        held = [args[place].untyped_storage().data_ptr() in self._weights for place, _ in factors]
        if not any(held):
            return
        for is_weight, (place, axes) in zip(held, factors, strict=True):
            grid = self._rounding.weights if is_weight else self._rounding.activations
            args[place] = _rounded(args[place], grid, axes)


def _rounded(tensor: torch.Tensor, grid: Grid | None, axes: Sequence[int] | None) -> torch.Tensor:
    if grid is None or not tensor.is_floating_point():
        return tensor
    values = tensor.detach().float().numpy()
    axes = tuple(range(values.ndim)) if axes is None else axes
    return torch.from_numpy(rounded(values, grid, axes).copy()).to(tensor.dtype)
