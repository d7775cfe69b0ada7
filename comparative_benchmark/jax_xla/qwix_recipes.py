"""Recipes by Qwix, applied to the linear layers of a JAX model and checked for their effect.

Qwix is the quantisation library of JAX's authors; it replaces products while a model runs. It
changes layers whose weights it can find, and ignores the others silently, so the weights are
checked afterwards.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
from flax import nnx

from comparative_benchmark.backends.api import UnsupportedError
from comparative_benchmark.backends.recipes import Chosen, NotAppliedError
from comparative_benchmark.jax_xla.reference import SAME_VALUES
from openxla.benchmark.installation import install_command
from openxla.benchmark.models.model_interfaces import GenerationModel

# Qwix's name for a quantised weight, among the leaves of a module's state.
_VALUES = "qvalue"
_LINEAR = "dot_general"


def apply(
    model: Any, inputs: Sequence[jax.Array], recipe: Chosen
) -> tuple[Callable[..., Any], Any, dict[str, Any]]:
    """Applies a recipe to all linear layers of a model.

    Args:
      model: a flax.nnx module behind `module(params)`, or `apply(params, *inputs)` with a flat
        mapping of weights.
      inputs: inputs of a run that finds out which weights are multiplied.
      recipe: the recipe.

    Returns:
      A pure function of weights and inputs, the weights, and a summary: `name`, the number of
      changed `layers` and of `linear` ones, the type of their weights, and the bytes of all
      weights before and after.

    Raises:
      UnsupportedError: Qwix is not installed or cannot apply it here.
      NotAppliedError: it changed no layer.
    """
    try:
        import qwix
    except ImportError as error:
        raise UnsupportedError(f"recipes need Qwix: {install_command('recipes')}") from error
    if isinstance(model, GenerationModel):
        raise UnsupportedError(
            "Qwix wraps a single module call, but a generative model makes two: choose a model "
            "that only scores its input"
        )
    module = _module(model)
    linear = _products(module, inputs)
    try:
        rule: dict[str, Any] = recipe.configuration_in("jax_xla")
        provider = qwix.PtqProvider([qwix.QuantizationRule(op_names=(_LINEAR,), **rule)])
        quantized = qwix.quantize_model(module, provider, *inputs)
    except (NotImplementedError, TypeError, ValueError) as error:
        raise UnsupportedError(f"Qwix cannot apply {recipe.label}: {error}") from error
    graph, state = nnx.split(quantized)
    changed = [
        leaf
        for path, leaf in jax.tree.leaves_with_path(state)
        if any(getattr(key, "key", getattr(key, "name", None)) == _VALUES for key in path)
    ]
    if not changed:
        raise NotAppliedError(f"{recipe.label} changed 0 of {linear} linear layers")
    kinds = sorted({str(leaf.dtype) for leaf in changed})
    applied = {
        "name": recipe.label,
        "layers": len(changed),
        "linear": linear,
        "weight_class": ", ".join(kinds),
        "bytes_before": _bytes(nnx.state(module)),
        "bytes_after": _bytes(state),
    }
    return (lambda weights, *values: nnx.merge(graph, weights)(*values)), state, applied


class _Function(nnx.Module):
    """A pure function of weights and inputs, with the weights as its parameters."""

    def __init__(self, function: Callable[..., Any], weights: Mapping[str, Any]) -> None:
        self.function, self.names = function, tuple(weights)
        for name, value in weights.items():
            setattr(self, name, nnx.Param(value))

    def __call__(self, *inputs: jax.Array) -> Any:
        weights = {name: getattr(self, name)[...] for name in self.names}
        return self.function(weights, *inputs)


def _module(model: Any) -> nnx.Module:
    """Returns a model as a module, whose weights Qwix can find."""
    if hasattr(model, "module"):
        module: nnx.Module = model.module(model.params)
        return module
    if isinstance(getattr(model, "params", None), Mapping):
        if not model.params:
            raise UnsupportedError("recipes need linear layers, but the model has no weights")
        return _Function(model.apply, model.params)
    raise UnsupportedError(f"Qwix finds no weights in {type(model).__name__}")


def _products(module: nnx.Module, inputs: Sequence[jax.Array]) -> int:
    """Returns the number of a module's products with weights."""
    graph, state = nnx.split(module)
    traced = jax.make_jaxpr(lambda state, *values: nnx.merge(graph, state)(*values))(state, *inputs)
    held = [True] * len(jax.tree.leaves(state)) + [False] * len(inputs)
    return _count(traced.jaxpr, held)


def _count(program: Any, held: Sequence[bool]) -> int:
    """Counts products with weights in a program; `held` marks the arguments that are weights."""
    weights = {value for value, is_weight in zip(program.invars, held, strict=True) if is_weight}
    count = 0
    for equation in program.eqns:
        # Literals cannot be looked up, and are not weights.
        given = [not hasattr(value, "val") and value in weights for value in equation.invars]
        name = equation.primitive.name
        count += name == _LINEAR and any(given)
        if name in SAME_VALUES and any(given):
            weights.update(equation.outvars)
        if "jaxpr" in equation.params and len(equation.params["jaxpr"].in_avals) == len(given):
            count += _count(equation.params["jaxpr"].jaxpr, given)
    return count


def _bytes(state: Any) -> int:
    return sum(leaf.nbytes for leaf in jax.tree.leaves(state))
