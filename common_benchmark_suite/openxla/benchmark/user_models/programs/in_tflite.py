"""In a worker: a user's TFLite file."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from openxla.benchmark.def_types import Parameters
from openxla.benchmark.models.preprocessing import element_type_of
from openxla.benchmark.models.tflite.program import Program
from openxla.benchmark.user_models.inputs import Array, is_float
from openxla.benchmark.user_models.programs.program_model import (
    ProgramModel,
    in_place_of_truth,
    rounded,
)
from openxla.benchmark.user_models.programs.signature import Signature
from openxla.benchmark.user_models.python_files.loading import refusing

_WHY = "TFLite has no float64 kernels; its reference kernels were used"


class TfLiteFile(ProgramModel):
    """A file with fixed sizes, verified with LiteRT's reference kernels.

    Attributes:
      tflite_file: its path, for the runtimes that take it.
      input_names, output_names: tensor names, in the order of inputs and outputs.
    """

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(parameters)
        self.tflite_file: Path = self.path
        with refusing(f"{self.path} is not a valid TFLite file", ValueError, RuntimeError):
            program = Program(self.path, threads=1, xnnpack=False)

        self._details = program.input_forms()
        self.input_names = [name for name, _, _ in self._details]
        self.output_names = program.output_names()

    def signature(self) -> Signature:
        """Returns the program's signature."""
        tensors = [(name, element_type_of(dtype), shape) for name, shape, dtype in self._details]
        return Signature.of(self.path.name, tensors)

    def forward(self, *inputs: Any) -> Any:
        """Runs the program with LiteRT's reference kernels."""
        return tuple(self._run(inputs, OpResolverType.BUILTIN_REF))

    def truth_and_reference(self, inputs: Sequence[Array]) -> tuple[list[Any], list[Any]]:
        """See `ProgramModel`; a TFLite file has fixed types and cannot be widened to float64.

        If tensors are integers, a different rounding moves a result by one step, and integer inputs
        cannot be rounded. Another set of LiteRT's kernels then shows how large this effect is.
        """
        own = self._run(inputs, OpResolverType.BUILTIN_REF)
        self.without_float64 = _WHY
        if self._is_quantized() or not any(map(is_float, inputs)):
            optimised = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
            return in_place_of_truth(own), self._run(inputs, optimised)
        return in_place_of_truth(own), self._run(rounded(inputs), OpResolverType.BUILTIN_REF)

    def _is_quantized(self) -> bool:
        details = Interpreter(model_path=str(self.path)).get_tensor_details()
        return any(np.dtype(item["dtype"]) in (np.int8, np.uint8) for item in details)

    def _run(self, inputs: Sequence[Any], kernels: OpResolverType) -> list[Array]:
        with refusing(f"{self.path.name} cannot run", ValueError, RuntimeError):
            program = Program(self.path, threads=1, resolver=kernels)
            program.set_inputs([np.asarray(value) for value in inputs])
            program.invoke()
        return program.outputs()


def create_model(**parameters: Any) -> TfLiteFile:
    """Returns the program of a file.

    Raises:
      UserModelError: the file is incomplete.
    """
    return TfLiteFile(parameters)
