"""Arrays as `.npy` files, bfloat16 included; and a user's own inputs in such files.

A user's inputs are `input_0.npy`, ... in a directory, used instead of the suite's own.
"""

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import ml_dtypes
import numpy as np
import numpy.typing as npt

from openxla.benchmark.def_types import BenchmarkCase, ModelTestData, TensorSpec
from openxla.benchmark.files import substitute_of
from openxla.benchmark.models.preprocessing import element_type_of
from openxla.benchmark.workloads import workload_of

# numpy writes bfloat16 as two opaque bytes; we write no other type like that.
_BF16_ON_DISK = np.dtype("V2")

_STEM = "input"
USER_INPUTS_PREFIX = "USER_"


def save_all(
    directory: Path, stem: str, values: Sequence[npt.NDArray[Any]]
) -> list[dict[str, Any]]:
    """Writes `<stem>_0.npy` and so on; returns the name, shape and element type of each file."""
    directory.mkdir(parents=True, exist_ok=True)
    saved = []
    for index, value in enumerate(values):
        path = directory / f"{stem}_{index}.npy"
        # Write a new file: truncating one would crash a process that has mapped it.
        path.unlink(missing_ok=True)
        np.save(path, value, allow_pickle=False)
        saved.append(
            {"file": path.name, "shape": list(value.shape), "dtype": element_type_of(value.dtype)}
        )
    return saved


def load(path: Path, *, memory_map: bool = False) -> npt.NDArray[Any]:
    """Returns the array in a file; never unpickles.

    Raises:
      ValueError: the file is not an array, or holds Python objects.
    """
    # Not `np.load`, which also opens archives of arrays.
    if memory_map:
        value: npt.NDArray[Any] = np.lib.format.open_memmap(path, mode="r")
    else:
        with path.open("rb") as file:
            value = np.lib.format.read_array(file, allow_pickle=False)
    return value.view(ml_dtypes.bfloat16) if value.dtype == _BF16_ON_DISK else value


def load_all(directory: Path, stem: str) -> list[npt.NDArray[Any]]:
    """Returns `<stem>_0`, `<stem>_1` ... of a directory, in numerical order."""
    return [load(path, memory_map=True) for path in numbered(directory, stem)]


def numbered(directory: Path, stem: str) -> list[Path]:
    """Returns the files `<stem>_<n>.npy` in numerical order: 10 comes after 9, not after 1."""
    paths = directory.glob(f"{stem}_*.npy")
    ours = [path for path in paths if re.fullmatch(rf"{stem}_\d+", path.stem)]
    return sorted(ours, key=lambda path: int(path.stem.removeprefix(f"{stem}_")))


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
            name=f"{USER_INPUTS_PREFIX}{self.sha256[:8]}",
            source_url=str(self.directory),
            source_info="Arrays given by the user.",
            content_sha256=self.sha256,
        )


def user_input_files(directory: Path) -> list[Path]:
    """Returns the input files of a directory, in numerical order.

    Raises:
      UserInputError: the directory has no inputs, or a number is missing.
    """
    if not directory.is_dir():
        raise UserInputError(f"{directory} is not a directory")
    files = sorted(directory.glob(f"{_STEM}_*.npy"))
    expected = [directory / f"{_STEM}_{index}.npy" for index in range(max(len(files), 1))]
    if missing := [path.name for path in expected if path not in files]:
        there = ", ".join(path.name for path in files) or "no inputs"
        raise UserInputError(f"{directory} has no {missing[0]}; it contains {there}")
    return expected


def read_user_inputs(directory: Path) -> UserInputs:
    """Reads the inputs in a directory.

    Raises:
      UserInputError: a file is missing or is not an array of finite numbers.
    """
    digest, specs = hashlib.sha256(), []
    for path in user_input_files(directory):
        if instead := substitute_of(path):
            raise UserInputError(f"{path} is not an array: it {instead}")
        try:
            value = load(path, memory_map=True)
        except (ValueError, OSError) as error:
            raise UserInputError(f"{path} is not an array: {error}") from error
        is_inexact = value.dtype.kind in "fc" or value.dtype == ml_dtypes.bfloat16
        if is_inexact and not np.isfinite(value).all():
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
    by_name = {}
    for case in cases:
        if case.model.name not in by_name:
            _check(case, inputs)
            by_name[case.model.name] = BenchmarkCase.build(
                model=case.model, input_data=inputs.data, verify_parameters=case.verify_parameters
            )
    return list(by_name.values())


def _check(case: BenchmarkCase, inputs: UserInputs) -> None:
    model = case.model.name
    specs = workload_of(case).inputs
    if not specs:
        raise UserInputError(
            f"{model} does not declare its inputs (it has no architecture), so your inputs cannot "
            "be checked"
        )
    if len(specs) != len(inputs.specs):
        raise UserInputError(
            f"{inputs.directory}: number of inputs is {len(inputs.specs)}, but {model} takes "
            f"{len(specs)}: {', '.join(map(str, specs))}"
        )
    for index, (expected, given_spec) in enumerate(zip(specs, inputs.specs, strict=True)):
        if expected != given_spec:
            raise UserInputError(
                f"{inputs.directory / f'{_STEM}_{index}.npy'} is {given_spec}, but {model} takes "
                f"{expected}"
            )
