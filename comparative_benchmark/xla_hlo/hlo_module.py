"""HLO modules: conversions from and to text, protocol buffers and StableHLO."""

import re
from typing import Any

import numpy as np

from comparative_benchmark.xla_hlo.private_jaxlib import extension, hlo

_DEFINITION = re.compile(r"\s*(?:ROOT )?%?([\w.-]+) = (\w+)\[")
_PRODUCT = re.compile(r" (?:dot|convolution)\(([^)]*)\)")
_NAME = re.compile(r"%?([\w.-]+)$")


def is_exact(text: str) -> bool | None:
    """Returns whether all products and convolutions of float32 require the highest precision.

    With a lower one, XLA lets a GPU round the factors to TF32.

    Args:
      text: text of a module before optimisation.

    Returns:
      None for a program without such products.
    """
    types: dict[str, str] = {}
    exact: bool | None = None
    for line in text.splitlines():
        definition = _DEFINITION.match(line)
        if definition is None:
            continue
        types[definition[1]] = definition[2]
        product = _PRODUCT.search(line)
        if product is None:
            continue
        factors = [_NAME.search(factor.strip()) for factor in product[1].split(",")]
        if "f32" in (types.get(found[1]) for found in factors if found):
            exact = exact is not False and "operand_precision={highest,highest}" in line
    return exact


class HloModule:
    """An HLO module before compilation."""

    def __init__(self, computation: Any) -> None:
        self._computation = computation

    @classmethod
    def from_text(cls, text: str) -> "HloModule":
        """Parses HLO text.

        Raises:
          XlaError: the text is not valid HLO.
        """
        module = hlo.hlo_module_from_text(text)
        return cls(hlo.XlaComputation(module.as_serialized_hlo_module_proto()))

    @classmethod
    def from_proto(cls, serialized: bytes) -> "HloModule":
        """Returns the module of a serialised `HloModuleProto`."""
        return cls(hlo.XlaComputation(serialized))

    @classmethod
    def from_stablehlo(cls, module: bytes) -> "HloModule":
        """Converts MLIR bytecode of a StableHLO module."""
        return cls(extension.mlir.mlir_module_to_xla_computation(module))

    def text(self) -> str:
        """Returns text that can be parsed, and so includes large constants."""
        options = hlo.HloPrintOptions()
        options.print_large_constants = True
        text: str = self._computation.as_hlo_module().to_string(options)
        return text

    def proto(self) -> bytes:
        """Returns the serialised `HloModuleProto`."""
        serialized: bytes = self._computation.as_serialized_hlo_module_proto()
        return serialized

    def stablehlo(self) -> str | bytes:
        """Returns it as a StableHLO module, the only form that the PJRT client accepts."""
        module: str | bytes = extension.mlir.xla_computation_to_mlir_module(self._computation)
        return module

    def parameters(self) -> list[tuple[tuple[int, ...], np.dtype[Any]]]:
        """Returns shape and type of each parameter of the entry computation."""
        shapes = self._computation.program_shape().parameter_shapes()
        return [(tuple(shape.dimensions()), np.dtype(shape.element_type())) for shape in shapes]
