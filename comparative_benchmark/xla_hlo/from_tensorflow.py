"""Exports a TensorFlow model; imported by the export process only."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from comparative_benchmark.backends import host_settings
from comparative_benchmark.backends.api import Array
from comparative_benchmark.backends.frameworks.tensorflow_models import captured, function_of
from comparative_benchmark.xla_hlo.exported_program import HloModule, InputType

_STAGES = {"stablehlo": "stablehlo_serialized", "hlo-text": "hlo_serialized"}


class TensorFlowExporter:
    """Traces `forward(*inputs)`: the inputs come before the variables that it reads."""

    packages: tuple[str, ...] = ("tensorflow", "keras", "jaxlib")

    def __init__(self, model: Any, inputs: Sequence[InputType], platform: str) -> None:
        self._platform = platform.upper()
        self._inputs = [tf.TensorSpec(item.shape, item.dtype) for item in inputs]
        self._function = function_of(model.forward, jit_compile=True)
        self._concrete: Any = None
        self._stages: Any = None
        self._program = b""

    def trace(self) -> None:
        """Traces to a graph."""
        self._concrete = self._function.get_concrete_function(*self._inputs)

    def lower(self, form: str) -> bytes:
        """Lowers the graph to HLO or StableHLO with TensorFlow's bridge."""
        if self._platform == "CUDA":
            self._set_precision()
        # This reuses the trace above, because the types are the same.
        generate = self._function.experimental_get_compiler_ir(*self._inputs)
        self._stages = lambda stage: generate(stage=stage, platform_name=self._platform)
        program: bytes = self._stages(_STAGES.get(form, "hlo_serialized"))
        if form == "hlo-text":
            # TensorFlow's own text leaves out large constants.
            return HloModule.from_proto(program).text().encode()
        return program

    def module(self) -> HloModule:
        """Returns the lowered program."""
        return HloModule.from_proto(self._stages("hlo_serialized"))

    def arguments(self) -> list[int | Array]:
        """Returns the argument of each parameter: a weight, or the index of an input."""
        return [*range(len(self._inputs)), *captured(self._concrete).values()]

    def _set_precision(self) -> None:
        """Forbids TF32 for float32 models; TensorFlow's bridge writes this into the program."""
        held = (*self._inputs, *self._concrete.variables)
        exact = host_settings.is_float32(value.dtype.name for value in held)
        tf.config.experimental.enable_tensor_float_32_execution(not exact)
