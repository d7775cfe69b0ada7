"""Operators as an architecture: the same inputs and weights for every framework.

Weights of a layer are derived from its shape and generated whenever they are needed, because
checkpoints for a sweep of shapes would fill a disk.
"""

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from openxla.benchmark.def_types import DefinitionError, Parameters, TensorSpec
from openxla.benchmark.models.architectures.base import (
    Architecture,
    Arrays,
    TensorInit,
    element_type,
    integer,
)
from openxla.benchmark.operators.definition import Argument, Layer, Operator, get, is_floating

if TYPE_CHECKING:  # identities are computed without numpy
    import numpy as np
    import numpy.typing as npt


# Values of the parameter `direction`; a case without it runs forward.
FORWARD, FORWARD_BACKWARD = "forward", "forward_backward"

# By type: the exponent at which distinct numbers start, the number of exponents used, and the bits
# of the mantissa.
_DISTINCT = {"fp32": (-8, 16, 23), "fp16": (-8, 16, 10), "bf16": (-60, 120, 7)}


class OperatorArchitecture(Architecture):
    """Parameters: `model_name` (the operator), `m`, `k`, `n`, `data_type` and `direction`.

    With `forward_backward`, the inputs are the operator's inputs, then a cotangent (the gradient of
    a loss) for each floating-point result. The outputs are the operator's results, then the
    gradients of its floating-point inputs and of its weights, each in the order of declaration.
    """

    name = "operator"
    version = 1

    def config(self, model_name: str) -> Mapping[str, Any]:
        """Returns the identity of an operator; raises `DefinitionError` if it is unknown."""
        return {"operator": get(model_name).name}

    def has_weights(self, parameters: Parameters) -> bool:
        """Returns whether the operator is a layer."""
        return isinstance(operator_of(parameters), Layer)

    def canonical_name(self, model_name: str) -> str:
        """Returns the name unchanged: an operator has only one."""
        return get(model_name).name

    def tensors(self, config: Mapping[str, Any]) -> Iterable[TensorInit]:
        """Returns nothing: weights are inputs of an operator, or generated for a layer."""
        return ()

    def input_specs(self, parameters: Parameters) -> tuple[TensorSpec, ...]:
        """Returns the specs of the inputs."""
        given = [*arguments(parameters), *cotangents(parameters)]
        return tuple(_spec(argument, parameters) for argument in given)

    def output_specs(self, parameters: Parameters) -> tuple[TensorSpec, ...]:
        """Returns the specs of the outputs."""
        operator, shape = operator_of(parameters), shape_of(parameters)
        results = [_spec(result, parameters) for result in operator.results(*shape)]
        if not self.trains(parameters):
            return tuple(results)
        inputs = [_spec(item, parameters) for item in arguments(parameters) if is_floating(item)]
        dtype = element_type(parameters.get("data_type"))
        weights = [TensorSpec(shape=init.shape, dtype=dtype) for init in trained(parameters)]
        return (*results, *inputs, *weights)

    def hidden_sizes(self, parameters: Parameters) -> Mapping[str, int]:
        """Returns n if it is only the width of something between inputs and outputs."""
        n = shape_of(parameters)[2]
        other = {**parameters, "n": n + 1}
        specs = [(self.input_specs(p), self.output_specs(p)) for p in (parameters, other)]
        is_hidden = "n" in operator_of(parameters).uses and specs[0] == specs[1]
        return {"n": n} if is_hidden else {}

    def trains(self, parameters: Parameters) -> bool:
        """Returns whether the operator runs forward and backward."""
        return trains(parameters)

    def default_input_files(self) -> tuple[Path, ...]:
        """Returns nothing: inputs are random numbers."""
        return ()

    def default_inputs(self, parameters: Parameters) -> Any:
        """Returns the arrays of each argument; normal numbers are float32 with variance 1."""
        return self.drawn_inputs(parameters, "")

    def drawn_inputs(self, parameters: Parameters, draw: str) -> Any:
        """Returns the arrays of another random draw; `""` gives the default inputs."""
        operator = operator_of(parameters)
        return [
            _values(
                f"{operator.name}/{place}/{shape_of(parameters)}{draw}",
                argument,
                str(parameters["data_type"]),
            )
            for place, argument in enumerate([*arguments(parameters), *cotangents(parameters)])
        ]

    def preprocess(self, raw_input: Any, parameters: Parameters, checkpoint: Path) -> Arrays:
        """Returns the arrays in their element types."""
        from openxla.benchmark.models.preprocessing import numpy_dtype

        specs = self.input_specs(parameters)
        return tuple(a.astype(numpy_dtype(s.dtype)) for a, s in zip(raw_input, specs, strict=True))

    def label(self, parameters: Parameters) -> str:
        """Returns e.g. `matmul-fp32-64x128x256`, with the dimensions that the operator uses."""
        operator = operator_of(parameters)
        sizes = "x".join(str(integer(parameters, letter)) for letter in operator.uses)
        element_type(parameters.get("data_type"))
        direction = "-fwd-bwd" if self.trains(parameters) else ""
        return f"{operator.name}{direction}-{parameters['data_type']}-{sizes}"


def operator_of(parameters: Parameters) -> Operator:
    """Returns the operator that parameters name; raises `DefinitionError` if it is unknown."""
    return get(str(parameters["model_name"]))


def arguments(parameters: Parameters) -> tuple[Argument, ...]:
    """Returns the arguments of an operator with these parameters."""
    return tuple(operator_of(parameters).arguments(*shape_of(parameters)))


def trains(parameters: Parameters) -> bool:
    """Returns whether parameters request forward and backward.

    Raises:
      DefinitionError: the operator has no gradients, or the direction is unknown.
    """
    direction = parameters.get("direction", FORWARD)
    if direction not in (FORWARD, FORWARD_BACKWARD):
        raise DefinitionError(
            f"direction must be {FORWARD} or {FORWARD_BACKWARD}, got {direction!r}"
        )
    if direction == FORWARD:
        return False
    operator = operator_of(parameters)
    if not operator.is_differentiable:
        raise DefinitionError(f"{operator.name} has no gradients: its results are integers")
    return True


def cotangents(parameters: Parameters) -> list[Argument]:
    """Returns the incoming gradients of a loss, one for each floating-point result."""
    if not trains(parameters):
        return []
    results = operator_of(parameters).results(*shape_of(parameters))
    return [Argument(shape=result.shape) for result in results if is_floating(result)]


def trained(parameters: Parameters) -> list[TensorInit]:
    """Returns the weights that have gradients; empty for an operator without weights."""
    operator = operator_of(parameters)
    return operator.trained(*shape_of(parameters)) if isinstance(operator, Layer) else []


def flops_of(parameters: Parameters) -> int:
    """Returns the FLOPs of matrix products, times three for forward and backward.

    The backward of a matrix product consists of two products of the same size.
    """
    operator = operator_of(parameters)
    flops = operator.flops(*shape_of(parameters)) if operator.flops else 0
    return 3 * flops if trains(parameters) else flops


def weights_of(parameters: Parameters) -> "dict[str, npt.NDArray[np.generic]]":
    """Returns the float32 weights of a layer; empty for an operator without weights."""
    from openxla.benchmark.models.checkpoints import generate

    operator = operator_of(parameters)
    inits = operator.weights(*shape_of(parameters)) if isinstance(operator, Layer) else ()
    return {init.name: generate(init, seed=0) for init in inits}


def shape_of(parameters: Parameters) -> tuple[int, int, int]:
    """Returns m, k and n."""
    m, k, n = (integer(parameters, letter) for letter in "mkn")
    return m, k, n


def _spec(argument: Argument, parameters: Parameters) -> TensorSpec:
    usual = "i32" if argument.values == "indices" else element_type(parameters.get("data_type"))
    return TensorSpec(shape=argument.shape, dtype=argument.dtype or usual)


def _values(name: str, argument: Argument, data_type: str) -> "npt.NDArray[np.generic]":
    import numpy as np

    seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")
    random = np.random.Generator(np.random.Philox(seed))
    if argument.values == "indices":
        return random.integers(0, argument.below, argument.shape, dtype=np.int32)
    if argument.values == "distinct":
        rows = np.broadcast_to(np.arange(argument.shape[-1]), argument.shape)
        return _as_numbers(random.permuted(rows, axis=-1), data_type)
    return random.standard_normal(argument.shape, dtype=np.float32)


def _as_numbers(ranks: "npt.NDArray[np.int64]", data_type: str) -> "npt.NDArray[np.float32]":
    """Returns distinct numbers in the order of ranks, spread over the range of a type.

    Raises:
      DefinitionError: the type has too few numbers.
    """
    import numpy as np

    start, powers, bits = _DISTINCT[data_type]
    if ranks.shape[-1] > (most := powers << bits):
        raise DefinitionError(
            f"rows of {ranks.shape[-1]} elements are too long: {data_type} has only {most} values"
        )
    step = np.uint32((most // ranks.shape[-1]) << (23 - bits))
    first = np.float32(2.0**start).view(np.uint32)
    return (first + ranks.astype(np.uint32) * step).view(np.float32)


ARCHITECTURE = OperatorArchitecture()
