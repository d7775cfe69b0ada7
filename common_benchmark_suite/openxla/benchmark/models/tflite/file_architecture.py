"""Architectures of TFLite files: parameters come from the file's address."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from openxla.benchmark.def_types import Parameters, TensorSpec
from openxla.benchmark.models.architectures import Architecture
from openxla.benchmark.models.architectures.base import Arrays
from openxla.benchmark.models.tflite import model_uri


class FileArchitecture(Architecture):
    """Mixin for the architecture of the JAX model; `data_type` may be a TFLite precision.

    Inputs and outputs remain those of the fp32 model, whatever the file takes, because all programs
    get and are verified against the same arrays. A file with int8 inputs gets the same numbers,
    quantised with its own scale.
    """

    sources: ClassVar[Sequence[model_uri.Source]]

    def complete(self, parameters: Parameters) -> Parameters:
        """Adds the parameters in the file's address."""
        return model_uri.completed(super().complete(parameters), self.sources)

    def input_specs(self, parameters: Parameters) -> tuple[TensorSpec, ...]:
        """Returns the JAX model's inputs."""
        given = model_uri.unquantized(self.complete(parameters))
        return super().input_specs(given)  # type: ignore[safe-super]  # a base comes after this one

    def output_specs(self, parameters: Parameters) -> tuple[TensorSpec, ...]:
        """Returns the JAX model's outputs."""
        given = model_uri.unquantized(self.complete(parameters))
        return super().output_specs(given)  # type: ignore[safe-super]  # as above

    def preprocess(self, raw_input: Any, parameters: Parameters, checkpoint: Path) -> Arrays:
        """Returns the JAX model's input arrays, byte for byte."""
        given = self.complete(parameters)
        return super().preprocess(raw_input, given, checkpoint)  # type: ignore[safe-super]  # as above

    def label(self, parameters: Parameters) -> str:
        """Returns the JAX model's label, with the file's precision as the type."""
        given = self.complete(parameters)
        plain = super().label(model_uri.unquantized(given))
        return plain.replace("-fp32-", f"-{given['data_type']}-", 1)
