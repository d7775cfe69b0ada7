"""An architecture out of a TFLite file: parameters come from the file's address."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from openxla.benchmark.def_types import Parameters, TensorSpec
from openxla.benchmark.models.architectures import Architecture
from openxla.benchmark.models.architectures.base import Arrays
from openxla.benchmark.models.tflite import model_uri


class FileArchitecture(Architecture):
    """Base before the architecture of the JAX model; `data_type` may be a precision of TFLite.

    Inputs and outputs stay those of the fp32 model, whatever the file takes: they are what all
    programs are given and judged by. A file with int8 at its edges is given the same numbers,
    quantised as it says.
    """

    sources: ClassVar[Sequence[model_uri.Source]]

    def complete(self, parameters: Parameters) -> Parameters:
        """Adds what the file's address says."""
        return model_uri.completed(super().complete(parameters), self.sources)

    def input_specs(self, parameters: Parameters) -> tuple[TensorSpec, ...]:
        """Those of the JAX model."""
        given = model_uri.unquantized(self.complete(parameters))
        return super().input_specs(given)  # type: ignore[safe-super]  # a base comes after this one

    def output_specs(self, parameters: Parameters) -> tuple[TensorSpec, ...]:
        """Those of the JAX model."""
        given = model_uri.unquantized(self.complete(parameters))
        return super().output_specs(given)  # type: ignore[safe-super]  # as above

    def preprocess(self, raw_input: Any, parameters: Parameters, checkpoint: Path) -> Arrays:
        """Those of the JAX model, byte for byte."""
        given = self.complete(parameters)
        return super().preprocess(raw_input, given, checkpoint)  # type: ignore[safe-super]  # as above

    def label(self, parameters: Parameters) -> str:
        """The JAX model's label, with the file's precision for the type."""
        given = self.complete(parameters)
        plain = super().label(model_uri.unquantized(given))
        return plain.replace("-fp32-", f"-{given['data_type']}-", 1)
