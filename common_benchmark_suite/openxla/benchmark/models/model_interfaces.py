"""What a model must offer to be benchmarked.

A model module offers `create_model(**model_parameters)`, which returns one of these.
"""

import abc
from typing import Any

from openxla.benchmark import testdata


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


class TrainingModel(abc.ABC):
    """A model that can take a training step."""

    @abc.abstractmethod
    def generate_default_inputs(self) -> Any:
        """Returns raw input and labels."""

    @abc.abstractmethod
    def preprocess(self, raw_input: Any) -> Any:
        """Returns the arguments of `train_step`."""

    @abc.abstractmethod
    def train_step(self, *inputs: Any) -> Any:
        """Runs forward, backward and the update of the weights; returns the loss."""
