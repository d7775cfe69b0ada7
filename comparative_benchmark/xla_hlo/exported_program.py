"""Programs without a framework: HLO modules, and programs on disk with their weights.

Modules are converted from and to text, protocol buffers and StableHLO. The export process passes a
program to the worker as files:

program.*          the program, in the requested form
weights/*.npy      its weights, in the order of the parameters that take them

Neither side needs a framework to read or write it.
"""

import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from comparative_benchmark.backends import exported_programs
from comparative_benchmark.backends.api import Array
from comparative_benchmark.xla_hlo.private_jaxlib import extension, hlo
from openxla.benchmark.artifacts import array_files

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
        if "f32" in (types.get(name[1]) for name in factors if name):
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


# By compiler, the name of the program's file.
FORMS: Mapping[str, str] = {
    "stablehlo": "program.mlirbc",
    "hlo-text": "program.hlo.txt",
    "hlo-proto": "program.hlo.pb",
}
_PUBLISHED = {"stablehlo": "stablehlo_bytecode", "hlo-text": "xla_hlo_dump"}
_WEIGHTS = "weights"


def _as_shape(sizes: Sequence[int]) -> tuple[int, ...]:
    return tuple(sizes)


@attrs.frozen(kw_only=True)
class InputType:
    """Shape and numpy type (`bfloat16` among them) of an input."""

    shape: tuple[int, ...] = attrs.field(converter=_as_shape)
    dtype: str

    @classmethod
    def of(cls, array: Array) -> "InputType":
        """Returns the type of an array."""
        return cls(shape=array.shape, dtype=array.dtype.name)

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"


@attrs.frozen(kw_only=True)
class ExportedProgram:
    """A program and the sources of its arguments.

    Attributes:
      directory: the program's directory.
      form: one of `FORMS`.
      inputs: for each parameter of the program, the index of its input; None for a weight.
      versions: versions of the packages that exported it.
    """

    directory: Path
    form: str
    inputs: Sequence[int | None]
    versions: Mapping[str, str]

    @classmethod
    def published(
        cls, files: Mapping[str, tuple[Path, ...]], form: str, directory: Path
    ) -> "ExportedProgram":
        """Returns a published program as if it had been exported into an empty directory.

        Args:
          files: by type of artifact, see `BACKEND.starts_from`.
          form: one of `FORMS`.
          directory: target directory.

        Raises:
          StoreError: the archive of the weights is damaged.
        """
        (path,) = files[_PUBLISHED[form]]
        inputs = exported_programs.unpack(files["xla_weights"], directory / _WEIGHTS)
        program = cls(directory=directory, form=form, inputs=inputs, versions={})
        shutil.copyfile(path, program.path)
        return program

    @property
    def path(self) -> Path:
        """The file with the program."""
        return self.directory / FORMS[self.form]

    @property
    def has_weights(self) -> bool:
        """Whether weights are arguments; otherwise they are constants in the program."""
        return None in self.inputs

    @property
    def weights_directory(self) -> Path:
        """The folder with the weights."""
        return self.directory / _WEIGHTS

    def write_weights(self, weights: Sequence[Array]) -> None:
        """Writes the weights, in the order of their parameters."""
        array_files.save_all(self.weights_directory, exported_programs.STEM, weights)

    def weights(self) -> Iterator[Array]:
        """Yields the weights in the order of their parameters, one at a time in memory."""
        for path in array_files.numbered(self.weights_directory, exported_programs.STEM):
            yield array_files.load(path)

    def drop_weights(self) -> None:
        """Deletes the weights' files."""
        shutil.rmtree(self.weights_directory, ignore_errors=True)


def check_parameters(
    parameters: Sequence[tuple[tuple[int, ...], np.dtype[Any]]], expected: Sequence[InputType]
) -> None:
    """Raises TypeError if a program's parameters do not match its arguments."""
    actual = [InputType(shape=shape, dtype=dtype.name) for shape, dtype in parameters]
    for index, (takes, gets) in enumerate(zip(actual, expected, strict=False)):
        if takes != gets:
            raise TypeError(f"program parameter {index} is {takes}, but its argument is {gets}")
    if len(actual) != len(expected):
        raise TypeError(f"program parameters: expected {len(expected)}, got {len(actual)}")
