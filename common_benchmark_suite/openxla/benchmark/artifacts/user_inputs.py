"""A user's own inputs, used instead of the suite's: `input_0.npy`, ... in a directory."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import attrs
import numpy as np

from openxla.benchmark.artifacts import arrays
from openxla.benchmark.def_types import BenchmarkCase, ModelTestData, TensorSpec
from openxla.benchmark.files import substitute_of
from openxla.benchmark.models.preprocessing import element_type_of
from openxla.benchmark.workloads import workload_of

_STEM = "input"
PREFIX = "USER_"


class UserInputError(ValueError):
    """Inputs are missing, malformed, or do not fit a model; the message names the input."""


@attrs.frozen(kw_only=True)
class UserInputs:
    """The arrays in a directory.

    Attributes:
      directory: absolute path.
      specs: shape and type of each array, in order.
      sha256: digest of types, shapes and numbers, independent of the file format.
    """

    directory: Path
    specs: tuple[TensorSpec, ...]
    sha256: str

    @property
    def data(self) -> ModelTestData:
        """The input data of a case that uses the arrays."""
        return ModelTestData(
            name=f"{PREFIX}{self.sha256[:8]}",
            source_url=str(self.directory),
            source_info="Arrays given by the user.",
            content_sha256=self.sha256,
        )


def files_of(directory: Path) -> list[Path]:
    """Returns the input files of a directory, in numerical order.

    Raises:
      UserInputError: the directory has no inputs, or a number is missing.
    """
    if not directory.is_dir():
        raise UserInputError(f"{directory} is not a directory")
    found = sorted(directory.glob(f"{_STEM}_*.npy"))
    due = [directory / f"{_STEM}_{index}.npy" for index in range(max(len(found), 1))]
    if missing := [path.name for path in due if path not in found]:
        there = ", ".join(path.name for path in found) or "no inputs"
        raise UserInputError(f"{directory} has no {missing[0]}; it contains {there}")
    return due


def read(directory: Path) -> UserInputs:
    """Reads the inputs in a directory.

    Raises:
      UserInputError: a file is missing or is not an array of finite numbers.
    """
    digest, specs = hashlib.sha256(), []
    for path in files_of(directory):
        if instead := substitute_of(path):
            raise UserInputError(f"{path} is not an array: it {instead}")
        try:
            value = arrays.load(path, memory_map=True)
        except (ValueError, OSError) as error:
            raise UserInputError(f"{path} is not an array: {error}") from error
        if value.dtype.kind in "fc" and not np.isfinite(value).all():
            raise UserInputError(f"{path} contains NaN or infinity, so outputs cannot be verified")
        spec = TensorSpec(shape=value.shape, dtype=element_type_of(value.dtype))
        digest.update(f"{spec};".encode())
        digest.update(np.ascontiguousarray(value).tobytes())
        specs.append(spec)
    return UserInputs(directory=directory.absolute(), specs=tuple(specs), sha256=digest.hexdigest())


def cases_with(cases: Sequence[BenchmarkCase], inputs: UserInputs) -> list[BenchmarkCase]:
    """Returns the cases' models on these inputs, each model once.

    Raises:
      UserInputError: a model takes other inputs; nothing is cast or reshaped.
    """
    found = {}
    for case in cases:
        if case.model.name not in found:
            _check(case, inputs)
            found[case.model.name] = BenchmarkCase.build(
                model=case.model,
                input_data=inputs.data,
                verify_parameters=case.verify_parameters,
            )
    return list(found.values())


def _check(case: BenchmarkCase, inputs: UserInputs) -> None:
    model = case.model.name
    due = workload_of(case).inputs
    if not due:
        raise UserInputError(
            f"{model} does not declare its inputs (it has no architecture), so yours cannot be "
            "checked against them"
        )
    if len(due) != len(inputs.specs):
        raise UserInputError(
            f"{inputs.directory} has {len(inputs.specs)} inputs, but {model} takes {len(due)}: "
            f"{', '.join(map(str, due))}"
        )
    for index, (expected, found) in enumerate(zip(due, inputs.specs, strict=True)):
        if expected != found:
            raise UserInputError(
                f"{inputs.directory / f'{_STEM}_{index}.npy'} is {found}, but {model} takes "
                f"{expected}"
            )
