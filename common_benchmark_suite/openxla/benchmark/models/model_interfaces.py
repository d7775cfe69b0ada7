"""What a model must offer to be benchmarked.

A model module offers `create_model(**model_parameters)`, which returns one of these.
"""

import abc
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from openxla.benchmark import testdata

if TYPE_CHECKING:
    import numpy.typing as npt


class InferenceModel(abc.ABC):
    """A model that maps inputs to outputs.

    The harness calls `preprocess(generate_inputs(...))` once for each input set, keeps the arrays,
    and passes the same bytes to `forward` of every implementation that shares the workload.

    What was timed is verified on a second input, too, which is made of the first (see
    `second_input`). A model for which that gives no sense has a method `second_inputs(*inputs)`,
    which returns arrays of the same shapes and types.
    """

    @abc.abstractmethod
    def generate_default_inputs(self) -> Any:
        """Returns raw input, e.g. a text or a picture."""

    def generate_inputs(self, input_data: str) -> Any:
        """Returns the raw input of that name; for those that the suite knows, see `testdata.vary`.

        Raises:
          DefinitionError: the model has no such input.
        """
        return testdata.vary(self.generate_default_inputs(), input_data)

    @abc.abstractmethod
    def preprocess(self, raw_input: Any) -> Any:
        """Returns the arguments of `forward`: one array, or a tuple of arrays."""

    @abc.abstractmethod
    def forward(self, *inputs: Any) -> Any:
        """Runs the model on device-resident inputs; returns one array or a tuple of arrays."""

    def postprocess(self, outputs: Any) -> Any:
        """Makes something readable of the outputs; never timed."""
        return outputs


class TrainingRun(abc.ABC):
    """Weights and optimizer on their way through the steps of a run.

    Where a framework updates weights in place, so does it: what it knew before a step is gone.
    """

    @abc.abstractmethod
    def start(self) -> None:
        """Puts weights and optimizer back to where the first step starts."""

    @abc.abstractmethod
    def step(self, *batch: Any) -> tuple[Any, Any]:
        """Runs forward, backward and the update; returns loss and norm of the gradient."""

    @abc.abstractmethod
    def weights(self) -> "Mapping[str, npt.NDArray[Any]]":
        """Returns the trained weights as they are now, on the host, by the checkpoint's names."""


class TrainingModel(InferenceModel):
    """A model that is trained.

    Its inputs are the batches of all steps. `forward` takes all steps from the checkpoint on and
    returns what they led to; a backend takes them one by one, each as an iteration.
    """

    @abc.abstractmethod
    def batches(self, inputs: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Returns the arguments of each step."""
