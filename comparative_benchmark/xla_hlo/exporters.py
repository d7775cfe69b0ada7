"""Exporters of JAX and TensorFlow models; each imports its framework when it is created."""

import io
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np

from comparative_benchmark.backends import host_settings
from comparative_benchmark.backends.api import Array
from comparative_benchmark.xla_hlo.exported_program import HloModule, InputType
from comparative_benchmark.xla_hlo.private_jaxlib import extension

_STAGES = {"stablehlo": "stablehlo_serialized", "hlo-text": "hlo_serialized"}


class Exporter(Protocol):
    """Exports models of one framework.

    Attributes:
      packages: packages of the exporter and of the models.
    """

    packages: tuple[str, ...]

    def trace(self) -> None:
        """Traces the model."""

    def lower(self, form: str) -> bytes:
        """Returns the program in one of the forms."""

    def module(self) -> HloModule:
        """Returns the program as a module, whatever its form."""

    def arguments(self) -> list[int | Array]:
        """Returns the argument of each parameter: a weight, or the index of an input."""


def exporter_for(model: Any, inputs: Sequence[InputType], platform: str) -> Exporter | None:
    """Returns an exporter for the model, chosen by the framework that its module imported.

    Libraries of each framework may have imported the other: JAX models are recognised by `apply`.
    """
    if "tensorflow" in sys.modules and not hasattr(model, "apply"):
        return TensorFlowExporter(model, inputs, platform)
    if "jax" in sys.modules:
        return JaxExporter(model, inputs, platform)
    return None


class JaxExporter:
    """Traces `apply(params, *inputs)`: the weights come before the inputs."""

    packages: tuple[str, ...] = ("jax", "jaxlib", "flax")

    def __init__(self, model: Any, inputs: Sequence[InputType], platform: str) -> None:
        import jax

        from comparative_benchmark.backends.frameworks.jax_models import precision, split

        apply, self._params = split(model)
        self._weights = jax.tree.leaves(self._params)
        self._platform = platform
        self._inputs = [jax.ShapeDtypeStruct(item.shape, np.dtype(item.dtype)) for item in inputs]
        # Keep unused arguments, so that parameters and arguments match one by one.
        self._function = jax.jit(apply, keep_unused=True)
        types = {str(leaf.dtype) for leaf in (*self._weights, *self._inputs)}
        self._precision = partial(precision, on_gpu=platform == "cuda", types=types)
        self._traced: Any = None
        self._bytecode = b""

    def trace(self) -> None:
        """Traces to a jaxpr."""
        with self._precision():
            self._traced = self._function.trace(self._params, *self._inputs)

    def lower(self, form: str) -> bytes:
        """Lowers to StableHLO, and from there to HLO if requested."""
        with self._precision():
            lowered = self._traced.lower(lowering_platforms=(self._platform,))
        module = lowered.compiler_ir("stablehlo")
        if form == "stablehlo":
            from jaxlib.mlir.dialects import stablehlo

            version = stablehlo.get_current_version()
            portable: bytes = extension.mlir.serialize_portable_artifact(module, version)
            self._bytecode = portable
            return portable
        stream = io.BytesIO()
        module.operation.write_bytecode(file=stream)
        self._bytecode = stream.getvalue()
        converted = HloModule.from_stablehlo(self._bytecode)
        return converted.text().encode() if form == "hlo-text" else converted.proto()

    def module(self) -> HloModule:
        """Returns the lowered program."""
        return HloModule.from_stablehlo(self._bytecode)

    def arguments(self) -> list[int | Array]:
        """Returns the argument of each parameter: a weight, or the index of an input."""
        return [*map(np.asarray, self._weights), *range(len(self._inputs))]


class TensorFlowExporter:
    """Traces `forward(*inputs)`: the inputs come before the variables that it reads."""

    packages: tuple[str, ...] = ("tensorflow", "keras", "jaxlib")

    def __init__(self, model: Any, inputs: Sequence[InputType], platform: str) -> None:
        import tensorflow as tf

        from comparative_benchmark.backends.frameworks.tensorflow_models import function_of

        self._platform = platform.upper()
        self._inputs = [tf.TensorSpec(item.shape, item.dtype) for item in inputs]
        self._function = function_of(model.forward, jit_compile=True)
        self._concrete: Any = None
        self._stages: Any = None

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
        from comparative_benchmark.backends.frameworks.tensorflow_models import captured

        return [*range(len(self._inputs)), *captured(self._concrete).values()]

    def _set_precision(self) -> None:
        """Forbids TF32 for float32 models; TensorFlow's bridge writes this into the program."""
        import tensorflow as tf

        held = (*self._inputs, *self._concrete.variables)
        exact = host_settings.is_float32(value.dtype.name for value in held)
        tf.config.experimental.enable_tensor_float_32_execution(not exact)
