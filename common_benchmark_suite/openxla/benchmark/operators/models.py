"""What the models of operators share: their inputs, and the weights of layers."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from openxla.benchmark.def_types import Parameters
from openxla.benchmark.models import shared_model
from openxla.benchmark.models.architectures.base import element_type
from openxla.benchmark.models.preprocessing import numpy_dtype
from openxla.benchmark.operators.architecture import ARCHITECTURE, operator_of, weights_of
from openxla.benchmark.operators.definition import Operator

Model = TypeVar("Model", bound="OperatorModel")


class OperatorModel(shared_model.ArchitectureModel):
    """Base of the models: `operator`, and its inputs."""

    operator: Operator

    def set_operator(self, parameters: Parameters) -> None:
        """Sets what the base needs; an operator has no checkpoint."""
        self.architecture = ARCHITECTURE
        self.model_parameters = parameters
        self.checkpoint = Path()
        self.operator = operator_of(parameters)

    def weights(self) -> dict[str, Any]:
        """Returns the weights of a layer in the model's type; none of an operator."""
        dtype = numpy_dtype(element_type(self.model_parameters["data_type"]))
        return {name: v.astype(dtype) for name, v in weights_of(self.model_parameters).items()}

    def calibration_inputs(self, count: int) -> Iterator[Any]:
        """Yields other draws than the default input, to calibrate a quantisation with."""
        for index in range(1, count + 1):
            drawn = ARCHITECTURE.drawn_inputs(self.model_parameters, f"/{index}")
            yield self.preprocess(drawn)

    def second_inputs(self, *inputs: Any) -> Any:
        """Returns the operator's own second input, or that of the usual rule."""
        from openxla.benchmark.models.second_input import changed

        if self.operator.second_inputs is not None:
            return self.operator.second_inputs(*inputs)
        return [changed(value) for value in inputs]


def creator(build: Callable[[Parameters], Model]) -> Callable[..., Model]:
    """Returns the `create_model` of a framework's module; see `shared_model.creator`."""
    return shared_model.creator(ARCHITECTURE, build)
