"""A program on disk with its weights, passed from the export process to the worker.

    program.*          the program, in the requested form
    weights/*.npy      its weights, in the order of the parameters that take them

Neither side needs a framework to read or write it.
"""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from comparative_benchmark.backends import published_programs
from comparative_benchmark.backends.api import Array
from openxla.benchmark.artifacts import array_files

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
        inputs = published_programs.unpack(files["xla_weights"], directory / _WEIGHTS)
        found = cls(directory=directory, form=form, inputs=inputs, versions={})
        shutil.copyfile(path, found.path)
        return found

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
        array_files.save_all(self.weights_directory, published_programs.STEM, weights)

    def weights(self) -> Iterator[Array]:
        """Yields the weights in the order of their parameters, one at a time in memory."""
        for path in array_files.numbered(self.weights_directory, published_programs.STEM):
            yield array_files.load(path)

    def drop_weights(self) -> None:
        """Deletes the weights' files."""
        shutil.rmtree(self.weights_directory, ignore_errors=True)


def check_parameters(
    parameters: Sequence[tuple[tuple[int, ...], np.dtype[Any]]], expected: Sequence[InputType]
) -> None:
    """Raises TypeError if a program's parameters do not match its arguments."""
    found = [InputType(shape=shape, dtype=dtype.name) for shape, dtype in parameters]
    for index, (takes, gets) in enumerate(zip(found, expected, strict=False)):
        if takes != gets:
            raise TypeError(
                f"parameter {index} of the program is {takes}, but its argument is {gets}"
            )
    if len(found) != len(expected):
        raise TypeError(f"the program has {len(found)} parameters, but {len(expected)} arguments")
