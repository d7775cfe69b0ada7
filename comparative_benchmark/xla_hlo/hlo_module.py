"""HLO modules: from text, from protocol buffers, and from and to StableHLO."""

from typing import Any

import ml_dtypes  # noqa: F401  # numpy knows bfloat16 by it
import numpy as np

from comparative_benchmark.xla_hlo.private_jaxlib import extension, hlo


class HloModule:
    """An HLO module that is not compiled yet."""

    def __init__(self, computation: Any) -> None:
        self._computation = computation

    @classmethod
    def from_text(cls, text: str) -> "HloModule":
        """Parses HLO text.

        Raises:
          XlaError: it is none.
        """
        module = hlo.hlo_module_from_text(text)
        return cls(hlo.XlaComputation(module.as_serialized_hlo_module_proto()))

    @classmethod
    def from_proto(cls, serialized: bytes) -> "HloModule":
        """Takes a serialised `HloModuleProto`."""
        return cls(hlo.XlaComputation(serialized))

    @classmethod
    def from_stablehlo(cls, module: bytes) -> "HloModule":
        """Converts MLIR bytecode of a StableHLO module."""
        return cls(extension.mlir.mlir_module_to_xla_computation(module))

    def text(self) -> str:
        """Returns text that can be parsed: without large constants, as is usual, it could not."""
        options = hlo.HloPrintOptions()
        options.print_large_constants = True
        text: str = self._computation.as_hlo_module().to_string(options)
        return text

    def proto(self) -> bytes:
        """Returns the serialised `HloModuleProto`."""
        serialized: bytes = self._computation.as_serialized_hlo_module_proto()
        return serialized

    def stablehlo(self) -> str | bytes:
        """Returns it as a StableHLO module, the only form that the PJRT client takes."""
        module: str | bytes = extension.mlir.xla_computation_to_mlir_module(self._computation)
        return module

    def parameters(self) -> list[tuple[tuple[int, ...], np.dtype[Any]]]:
        """Returns shape and type of each parameter of the entry computation."""
        shapes = self._computation.program_shape().parameter_shapes()
        return [(tuple(shape.dimensions()), np.dtype(shape.element_type())) for shape in shapes]
