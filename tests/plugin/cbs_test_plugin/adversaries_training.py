"""Faults of a linear layer that is run forward and backward, in PyTorch and in JAX."""

from collections.abc import Callable, MutableMapping, Sequence
from typing import Any

# Takes the right step as a function of its inputs, x and the cotangent; these; and what it keeps.
# A step returns the output, the gradient of x and the gradient of the weight, which is square.
Fault = Callable[[Callable[..., Any], Sequence[Any], MutableMapping[str, Any]], Any]


def _zeroed(step: Any, inputs: Any, kept: Any) -> Any:
    y, of_x, of_weight = step(*inputs)
    return y, of_x, of_weight * 0


def _transposed(step: Any, inputs: Any, kept: Any) -> Any:
    y, of_x, of_weight = step(*inputs)
    return y, of_x, of_weight.T


def _scaled(step: Any, inputs: Any, kept: Any) -> Any:
    y, of_x, of_weight = step(*inputs)
    return y, of_x * 1.02, of_weight


def _without_cotangent(step: Any, inputs: Any, kept: Any) -> Any:
    x, cotangent = inputs
    y, _, _ = step(x, cotangent)
    _, of_x, of_weight = step(x, cotangent * 0 + 1)
    return y, of_x, of_weight


def _of_before(step: Any, inputs: Any, kept: Any) -> Any:
    y, of_x, of_weight = step(*inputs)
    before, kept["gradient"] = kept.get("gradient", of_weight), of_weight
    return y, of_x, before


def _accumulated(step: Any, inputs: Any, kept: Any) -> Any:
    """Adds to the gradient of the previous run, which was not zeroed."""
    y, of_x, of_weight = step(*inputs)
    kept["gradient"] = kept.get("gradient", 0) + of_weight
    return y, of_x, kept["gradient"]


IN_ONE_RUN: dict[str, Fault] = {
    "gradient-zeroed": _zeroed,
    "gradient-transposed": _transposed,
    "gradient-scaled": _scaled,
    "gradient-without-cotangent": _without_cotangent,
}
# Functions of JAX keep nothing.
KEEPING_GRADIENTS: dict[str, Fault] = {
    "gradient-of-before": _of_before,
    "gradient-accumulated": _accumulated,
}
GRADIENTS: dict[str, Fault] = {**IN_ONE_RUN, **KEEPING_GRADIENTS}


def create_model(fault: str, framework: str, **parameters: Any) -> Any:
    """Returns a layer with a fault, or a right one for `none`."""
    function = GRADIENTS.get(fault, lambda step, inputs, kept: step(*inputs))
    return (_in_torch if framework == "pt" else _in_jax)(function, parameters)


def _in_torch(function: Fault, parameters: dict[str, Any]) -> Any:
    from openxla.benchmark.operators.in_torch import TrainingModel, create_model

    class Wrong(TrainingModel):
        def training_step(self, *compiler: Any) -> Any:
            step, kept = super().training_step(*compiler), {}
            return lambda *inputs: function(step, inputs, kept)

    right = create_model(**parameters)
    return Wrong(right.model_parameters, right.layer)


def _in_jax(function: Fault, parameters: dict[str, Any]) -> Any:
    from openxla.benchmark.operators.architecture import ARCHITECTURE
    from openxla.benchmark.operators.in_jax import OperatorModel

    class Wrong(OperatorModel):
        def apply(self, params: Any, *inputs: Any) -> Any:
            step = super().apply
            return function(lambda *values: step(params, *values), inputs, {})

    return Wrong(ARCHITECTURE.creation_parameters(parameters))
