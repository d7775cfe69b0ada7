"""Exports a JAX model; imported by the export process only."""

import io
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jaxlib.mlir.dialects import stablehlo

from comparative_benchmark.backends.api import Array
from comparative_benchmark.backends.frameworks.jax_models import precision, split
from comparative_benchmark.xla_hlo.exported_program import HloModule, InputType
from comparative_benchmark.xla_hlo.private_jaxlib import extension


class JaxExporter:
    """Traces `apply(params, *inputs)`: the weights come before the inputs."""

    packages: tuple[str, ...] = ("jax", "jaxlib", "flax")

    def __init__(self, model: Any, inputs: Sequence[InputType], platform: str) -> None:
        self._apply, self._params = split(model)
        self._platform = platform
        self._inputs = [jax.ShapeDtypeStruct(item.shape, np.dtype(item.dtype)) for item in inputs]
        self._traced: Any = None
        self._bytecode = b""

    def trace(self) -> None:
        """Traces to a jaxpr."""
        # Keep unused arguments, so that parameters and arguments match one by one.
        function = jax.jit(self._apply, keep_unused=True)
        with self._precision():
            self._traced = function.trace(self._params, *self._inputs)

    def lower(self, form: str) -> bytes:
        """Lowers to StableHLO, and from there to HLO if requested."""
        with self._precision():
            lowered = self._traced.lower(lowering_platforms=(self._platform,))
        module = lowered.compiler_ir("stablehlo")
        if form == "stablehlo":
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
        weights = [np.asarray(leaf) for leaf in jax.tree.leaves(self._params)]
        return [*weights, *range(len(self._inputs))]

    def _precision(self) -> Any:
        types = {str(leaf.dtype) for leaf in jax.tree.leaves((self._params, self._inputs))}
        return precision(on_gpu=self._platform == "cuda", types=types)
