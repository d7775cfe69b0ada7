"""Common parts of operator models: their inputs, and the weights of layers."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from openxla.benchmark.def_types import Parameters
from openxla.benchmark.models import shared_model
from openxla.benchmark.models.architectures.base import element_type
from openxla.benchmark.models.preprocessing import numpy_dtype
from openxla.benchmark.operators.architecture import (
    ARCHITECTURE,
    arguments,
    operator_of,
    trained,
    trains,
    weights_of,
)
from openxla.benchmark.operators.definition import Operator

Model = TypeVar("Model", bound="OperatorModel")


class OperatorModel(shared_model.ArchitectureModel):
    """Base of the models: `operator`, and its inputs.

    Attributes:
      trains: whether it runs forward and backward.
      trained: names of the weights whose gradients it then returns.
    """

    operator: Operator
    trains: bool
    trained: list[str]

    def set_operator(self, parameters: Parameters) -> None:
        """Sets the operator and its parameters; operators have no checkpoint."""
        self.architecture = ARCHITECTURE
        self.model_parameters = parameters
        self.checkpoint = Path()
        self.operator = operator_of(parameters)
        self.trains = trains(parameters)
        self.trained = [init.name for init in trained(parameters)]

    def weights(self) -> dict[str, Any]:
        """Returns the weights of a layer in the model's type; empty for other operators."""
        dtype = numpy_dtype(element_type(self.model_parameters["data_type"]))
        return {name: v.astype(dtype) for name, v in weights_of(self.model_parameters).items()}

    def calibration_inputs(self, count: int) -> Iterator[Any]:
        """Yields random inputs other than the default one, to calibrate quantisation."""
        for index in range(1, count + 1):
            drawn = ARCHITECTURE.drawn_inputs(self.model_parameters, f"/{index}")
            yield self.preprocess(drawn)

    def second_inputs(self, *inputs: Any) -> Any:
        """Returns the operator's own second input, or one made by the usual rule."""
        from openxla.benchmark.models.second_input import changed

        given, cotangents = self.split(inputs)
        own = self.operator.second_inputs
        second = map(changed, given) if own is None else own(*given)
        return [*second, *map(changed, cotangents)]

    def split(self, inputs: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Returns the inputs of the operator, and the cotangents of its results."""
        count = len(arguments(self.model_parameters))
        return list(inputs[:count]), list(inputs[count:])


def creator(build: Callable[[Parameters], Model]) -> Callable[..., Model]:
    """Returns the `create_model` of a framework's module; see `shared_model.creator`."""
    return shared_model.creator(ARCHITECTURE, build)
