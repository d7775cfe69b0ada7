"""The parts of a model that its architecture determines: inputs, calibration inputs, checkpoint."""

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from openxla.benchmark.def_types import DefinitionError, Parameters
from openxla.benchmark.models import checkpoints, trained
from openxla.benchmark.models.architectures import Architecture
from openxla.benchmark.models.architectures.base import integer
from openxla.benchmark.models.model_interfaces import InferenceModel

Model = TypeVar("Model", bound=InferenceModel)


def calibration_sets(
    architecture: Architecture, parameters: Parameters, checkpoint: Path, count: int
) -> Iterator[tuple[npt.NDArray[np.generic], ...]]:
    """Yields `count` input sets of a model, as its `forward` takes them.

    They are the rows after the default input in a larger batch: each row is another window of the
    text, or the picture shifted. The default input is excluded.

    Raises:
      DefinitionError: an input does not depend on the batch size, so there is only one set.
    """
    batch = integer(parameters, "batch_size")
    larger = {**parameters, "batch_size": (count + 1) * batch}
    raw: Any = architecture.default_inputs(larger)
    arrays = architecture.preprocess(raw, larger, checkpoint)
    for position, array in enumerate(arrays):
        if array.ndim == 0 or array.shape[0] != larger["batch_size"]:
            raise DefinitionError(
                f"{architecture.name}: input {position} has shape {array.shape}, which does not "
                "grow with the batch; add a method `calibration_inputs(count)` to the model"
            )
    for index in range(1, count + 1):
        rows = slice(index * batch, (index + 1) * batch)
        yield tuple(np.ascontiguousarray(array[rows]) for array in arrays)


class ArchitectureModel(InferenceModel):
    """Base of the models that share an architecture with other frameworks.

    Subclasses load the weights of `checkpoint` and define `forward`.
    """

    architecture: Architecture
    model_parameters: Parameters
    checkpoint: Path

    def set_architecture(self, architecture: Architecture, parameters: Parameters) -> None:
        """Resolves the checkpoint; must be called first in `__init__`.

        Not an `__init__` itself: a torch module must run its own before any attribute is set.
        """
        self.architecture = architecture
        self.model_parameters = parameters
        self.checkpoint = checkpoints.resolve(architecture, parameters)

    def generate_default_inputs(self) -> Any:
        """The architecture's default text or picture."""
        return self.architecture.default_inputs(self.model_parameters)

    def generate_inputs(self, input_data: str) -> Any:
        """The architecture's text or picture of that name."""
        return self.architecture.inputs(self.model_parameters, input_data)

    def preprocess(self, raw_input: Any) -> tuple[npt.NDArray[np.generic], ...]:
        """The architecture's input arrays, as `Architecture.input_specs` declares them."""
        return self.architecture.preprocess(raw_input, self.model_parameters, self.checkpoint)

    def calibration_inputs(self, count: int) -> Iterator[tuple[npt.NDArray[np.generic], ...]]:
        """Yields input sets to calibrate quantisation; see `calibration_sets`.

        A trained model uses some of its training data.
        """
        if task := trained.task_of(self.model_parameters):
            return task.calibration(self.architecture, self.model_parameters, count)
        return calibration_sets(self.architecture, self.model_parameters, self.checkpoint, count)


def creator(
    architecture: Architecture, build: Callable[[Parameters], Model]
) -> Callable[..., Model]:
    """Returns the `create_model` of a model's module.

    It takes a definition's parameters by name. Defaults come from the architecture: one row of
    fp32, of the model named in `standard`. All models take `seed`, and `checkpoint` (`seeded` or
    `pretrained`) if the architecture has a pretrained one. Unknown parameters are accepted, because
    definitions of other suites contain hints for their own tools.

    Args:
      architecture: architecture of the model.
      build: makes the model from its complete parameters.
    """

    def create_model(**parameters: Any) -> Model:
        """Returns the model with these parameters."""
        return build(architecture.creation_parameters(parameters))

    return create_model


def run_once(create_model: Callable[..., InferenceModel], **parameters: Any) -> None:
    """Runs a model once and prints the shape and summary of each output; for `__main__`.

    Command-line arguments of the form `name=value` override parameters.
    """
    for argument in sys.argv[1:]:
        name, separator, value = argument.partition("=")
        if not separator or name not in parameters:
            known = ", ".join(parameters)
            raise SystemExit(f"expected NAME=VALUE with a name from {known}, got {argument!r}")
        parameters[name] = type(parameters[name])(value)
    model = create_model(**parameters)
    inputs = as_tuple(model.preprocess(model.generate_default_inputs()))
    start = time.perf_counter()
    outputs = as_tuple(model.postprocess(model.forward(*inputs)))
    elapsed_ms = 1e3 * (time.perf_counter() - start)
    for index, output in enumerate(outputs):
        values = np.asarray(output, dtype=np.float32)
        print(f"output_{index}: {values.shape} mean {values.mean():+.4f} std {values.std():.4f}")
    print(f"one run under uncontrolled conditions: {elapsed_ms:.1f} ms")


def as_tuple(value: Any) -> tuple[Any, ...]:
    """Returns a tuple or list as a tuple, and any other value as a tuple of one."""
    return tuple(value) if isinstance(value, tuple | list) else (value,)
