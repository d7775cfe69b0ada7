"""In a worker: what exported programs have in common, whatever runs them."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from openxla.benchmark.artifacts.workload_store import TruthCheck
from openxla.benchmark.def_types import Parameters
from openxla.benchmark.models.preprocessing import element_type_of
from openxla.benchmark.user_models.inputs import Array, BroughtModel
from openxla.benchmark.user_models.programs.programs import ALL_KINDS, digest_of
from openxla.benchmark.user_models.programs.signature import Signature
from openxla.benchmark.user_models.specs import InputSpec
from openxla.benchmark.user_models.wanted import BroughtError

SEED = 7
_DATA_TYPES = {"float64": "fp64", "float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}


class NotWidenedError(Exception):
    """A program has no float64 run; the message says why."""


class ProgramModel(BroughtModel):
    """An exported program: it is run as it is, on inputs of its own types.

    Attributes:
      path: of the file, or the folder.
      without_float64: why its truth is not a float64 run; None if it is, or was not made yet.
      truth_check: how its truths were checked by a second implementation; None if they were not.
    """

    without_float64: str | None = None
    truth_check: TruthCheck | None = None

    def __init__(self, parameters: Parameters) -> None:
        """Checks that the program is the one that the run was planned with.

        Raises:
          BroughtError: it is not, or not whole.
        """
        self.model_parameters = parameters
        self.example = self.file = None
        self.path = Path(str(parameters["source"]))
        kind = next(kind for kind in ALL_KINDS if kind.name == parameters["program"])
        if digest_of(self.path, kind) != parameters["source_sha256"]:
            raise BroughtError(f"{self.path} has changed since this run was planned")

    def check_types(self, dtypes: Iterable[Any]) -> None:
        """Checks that a program computes in the type that the case says.

        Args:
          dtypes: of its weights or inputs, as its framework calls them.

        Raises:
          BroughtError: none is of that type, but some are of another.
        """
        names = (str(getattr(dtype, "__name__", dtype)).rpartition(".")[2] for dtype in dtypes)
        found = {_DATA_TYPES[name] for name in names if name in _DATA_TYPES}
        due = str(self.model_parameters["data_type"])
        if found and due not in found:
            known = min(found)
            hint = f"; pass --dtype {known}" if known != "fp64" else ""
            raise BroughtError(f"{self.path.name} computes in {known}, not {due}{hint}")

    def signature(self) -> Signature:
        """Returns what it takes."""
        raise NotImplementedError

    def generate_default_inputs(self) -> Any:
        """Returns the inputs that the case names, or those that the program asks for.

        Raises:
          BroughtError: the program takes others.
        """
        return [spec.array(place) for place, spec in enumerate(self.inputs())]

    def inputs(self) -> tuple[InputSpec, ...]:
        """Returns the inputs that the case names, or those that the program asks for.

        Raises:
          BroughtError: the program takes others, or it cannot be told how large one is.
        """
        written = list(filter(None, str(self.model_parameters.get("inputs", "")).split("; ")))
        sizes = (self.model_parameters.get(key) for key in ("batch_size", "seq_len"))
        # What is written has numbers for them already.
        batch, seq = (None, None) if written else map(_number, sizes)
        return self.signature().inputs(written, batch, seq)

    def preprocess(self, raw_input: Any) -> tuple[Array, ...]:
        """Returns the arrays as they are: a program is not cast."""
        return tuple(raw_input)

    def try_out(self, *inputs: Array) -> None:
        """Checks the inputs, which may be the user's own arrays.

        Raises:
          BroughtError: the program takes others.
        """
        forms = [
            InputSpec(element_type=element_type_of(value.dtype), sizes=value.shape)
            for value in inputs
        ]
        self.signature().check(forms)

    def note_check(self, check: TruthCheck) -> None:
        """Keeps how one more truth was checked; one that is in doubt is not a float64 truth."""
        self.truth_check = check.joined(self.truth_check)
        if doubts := self.truth_check.in_doubt:
            self.without_float64 = f"its truth is in doubt: {'; '.join(map(str, doubts[:3]))}"

    def truth_and_reference(self, inputs: Sequence[Array]) -> tuple[list[Any], list[Any]]:
        """Returns the outputs in float64, and of a plain run in the program's own type.

        Where it cannot be computed in float64, a plain run takes the truth's place, and one on
        weights that are rounded a little the reference's: it says how far rounding alone goes. What
        is judged by these agrees, and no more can be said; `without_float64` tells why.
        """
        raise NotImplementedError


def in_place_of_truth(outputs: Sequence[Array]) -> list[Array]:
    """Returns the outputs of a plain run as float64, where a truth is due."""
    return [
        value.astype(np.float64)
        if value.dtype.kind == "f" or value.dtype.name == "bfloat16"
        else value
        for value in outputs
    ]


def rounded(
    inputs: Sequence[Array], *, spacings: float | None = None, seed: int = SEED
) -> list[Array]:
    """Returns inputs that are put off at random.

    Args:
      inputs: arrays of any types.
      spacings: largest change in spacings of the type; by default `rounding_of` the type.
      seed: of the random numbers.
    """
    random = np.random.Generator(np.random.Philox(seed))
    found = []
    for value in inputs:
        if value.dtype.kind == "f" or value.dtype.name == "bfloat16":
            size = rounding_of(value.dtype) if spacings is None else spacings * _eps(value.dtype)
            off = 1 + size * random.uniform(-1, 1, value.shape)
            found.append((value.astype(np.float64) * off).astype(value.dtype))
        else:
            found.append(value)
    return found


def rounding_of(dtype: np.dtype[Any]) -> float:
    """Returns by how much, relative to their size, numbers are put off for an agreement's limit.

    Two right kernels that are compared are each off by a spacing of float32: they round coordinates
    and factors that they derive, too. 16-bit kernels compute in float32 and round once, so that
    one spacing covers both.
    """
    return _eps(dtype) if dtype.itemsize == 2 else 2 * _eps(dtype)


def _eps(dtype: np.dtype[Any]) -> float:
    return float(ml_dtypes.finfo(dtype).eps)


def _number(value: object) -> int | None:
    return value if isinstance(value, int) else None
