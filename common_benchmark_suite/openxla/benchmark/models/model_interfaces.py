"""Interfaces that a model must implement to be benchmarked.

A model module provides `create_model(**model_parameters)`, which returns one of these.
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

    The timed program is also verified on a second input, which is derived from the first (see
    `second_input`). If the result would be meaningless for a model, it can define a method
    `second_inputs(*inputs)`, which returns arrays of the same shapes and types.
    """

    @abc.abstractmethod
    def generate_default_inputs(self) -> Any:
        """Returns raw input, e.g. a text or a picture."""

    def generate_inputs(self, input_data: str) -> Any:
        """Returns the raw input of that name; see `testdata.vary` for the suite's names.

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
        """Converts outputs to a readable form; never timed."""
        return outputs


class TrainingRun(abc.ABC):
    """Weights and optimizer state during the steps of a run.

    If a framework updates weights in place, earlier weights are lost after each step.
    """

    @abc.abstractmethod
    def start(self) -> None:
        """Resets weights and optimizer to the state before the first step."""

    @abc.abstractmethod
    def step(self, *batch: Any) -> tuple[Any, Any]:
        """Runs forward, backward and the update; returns loss and norm of the gradient."""

    @abc.abstractmethod
    def weights(self) -> "Mapping[str, npt.NDArray[Any]]":
        """Returns the current trained weights on the host, by the checkpoint's names."""


class TrainingModel(InferenceModel):
    """A model that is trained.

    Its inputs are the batches of all steps. `forward` takes all steps from the checkpoint and
    returns their result; a backend takes them one at a time, each as an iteration.
    """

    @abc.abstractmethod
    def batches(self, inputs: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Returns the arguments of each step."""
