"""In a worker: the common part of exported programs in all frameworks."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from openxla.benchmark.artifacts.workload_store import TruthCheck
from openxla.benchmark.def_types import Parameters
from openxla.benchmark.models.preprocessing import element_type_of
from openxla.benchmark.user_models.inputs import Array, UserModel, is_float
from openxla.benchmark.user_models.model_options import InputSpec, UserModelError
from openxla.benchmark.user_models.programs.programs import ALL_KINDS, digest_of
from openxla.benchmark.user_models.programs.signature import Signature

SEED = 7
_DATA_TYPES = {"float64": "fp64", "float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}


class NotWidenedError(Exception):
    """The program cannot be run in float64; the message gives the reason."""


class ProgramModel(UserModel):
    """An exported program, run unmodified on inputs of the types that it declares.

    Attributes:
      path: path of the file or folder.
      without_float64: why its truth is not a float64 run; None if it is, or is not computed yet.
      truth_check: how its truths were checked by a second implementation; None if they were not.
    """

    without_float64: str | None = None
    truth_check: TruthCheck | None = None

    def __init__(self, parameters: Parameters) -> None:
        """Checks that the program is the one for which the run was planned.

        Raises:
          UserModelError: the program has changed, or is incomplete.
        """
        self.model_parameters = parameters
        self.example = self.file = None
        self.path = Path(str(parameters["source"]))
        kind = next(kind for kind in ALL_KINDS if kind.name == parameters["program"])
        if digest_of(self.path, kind) != parameters["source_sha256"]:
            raise UserModelError(f"{self.path} has changed since this run was planned")

    def check_types(self, dtypes: Iterable[Any]) -> None:
        """Checks that a program computes in the type named in the case.

        Args:
          dtypes: types of its weights or inputs, as its framework names them.

        Raises:
          UserModelError: none has that type, but some have another floating-point type.
        """
        names = (str(getattr(dtype, "__name__", dtype)).rpartition(".")[2] for dtype in dtypes)
        types = {_DATA_TYPES[name] for name in names if name in _DATA_TYPES}
        declared = str(self.model_parameters["data_type"])
        if types and declared not in types:
            known = min(types)
            hint = f"; pass --dtype {known}" if known != "fp64" else ""
            raise UserModelError(f"{self.path.name} computes in {known}, not {declared}{hint}")

    def signature(self) -> Signature:
        """Returns the program's signature."""
        raise NotImplementedError

    def generate_default_inputs(self) -> Any:
        """Returns the inputs that the case names, or the program's default inputs.

        Raises:
          UserModelError: the program takes other inputs.
        """
        return [spec.array(place) for place, spec in enumerate(self.inputs())]

    def inputs(self) -> tuple[InputSpec, ...]:
        """Returns the inputs that the case names, or the program's default inputs.

        Raises:
          UserModelError: the program takes other inputs, or the size of an input is unknown.
        """
        written = list(filter(None, str(self.model_parameters.get("inputs", "")).split("; ")))
        sizes = (self.model_parameters.get(key) for key in ("batch_size", "seq_len"))
        # Recorded inputs have all sizes as numbers.
        batch, seq = (None, None) if written else map(_number, sizes)
        return self.signature().inputs(written, batch, seq)

    def preprocess(self, raw_input: Any) -> tuple[Array, ...]:
        """Returns the arrays unchanged: programs are not cast."""
        return tuple(raw_input)

    def try_out(self, *inputs: Array) -> None:
        """Checks the inputs, which may be the user's own arrays.

        Raises:
          UserModelError: the program takes other inputs.
        """
        forms = [
            InputSpec(element_type=element_type_of(value.dtype), sizes=value.shape)
            for value in inputs
        ]
        self.signature().check(forms)

    def note_check(self, check: TruthCheck) -> None:
        """Records how a further truth was checked; a truth in doubt does not count as float64."""
        self.truth_check = check.joined(self.truth_check)
        if doubts := self.truth_check.in_doubt:
            self.without_float64 = f"its truth is in doubt: {'; '.join(map(str, doubts[:3]))}"

    def truth_and_reference(self, inputs: Sequence[Array]) -> tuple[list[Any], list[Any]]:
        """Returns the outputs in float64, and the outputs of a plain run in the program's type.

        If a float64 run is impossible, a plain run serves as truth. A run on slightly perturbed
        weights or inputs is the reference, and shows the effect of rounding. Results can only
        agree with the plain run then; `without_float64` gives the reason.
        """
        raise NotImplementedError


def in_place_of_truth(outputs: Sequence[Array]) -> list[Array]:
    """Returns the outputs of a plain run as float64, in the form of a truth."""
    return [value.astype(np.float64) if is_float(value) else value for value in outputs]


def rounded(
    inputs: Sequence[Array], *, spacings: float | None = None, seed: int = SEED
) -> list[Array]:
    """Returns randomly perturbed inputs.

    Args:
      inputs: arrays of any types.
      spacings: largest change, in spacings of the type; by default `rounding_of` the type.
      seed: seed of the random numbers.
    """
    random = np.random.Generator(np.random.Philox(seed))
    arrays = []
    for value in inputs:
        if is_float(value):
            size = rounding_of(value.dtype) if spacings is None else spacings * _eps(value.dtype)
            off = 1 + size * random.uniform(-1, 1, value.shape)
            arrays.append((value.astype(np.float64) * off).astype(value.dtype))
        else:
            arrays.append(value)
    return arrays


def rounding_of(dtype: np.dtype[Any]) -> float:
    """Returns the relative perturbation used to derive a limit for agreement.

    Each of two correct kernels may be off by a spacing of float32, because it also rounds
    coordinates and factors that it derives. 16-bit kernels compute in float32 and round once, so
    one spacing covers both.
    """
    return _eps(dtype) if dtype.itemsize == 2 else 2 * _eps(dtype)


def _eps(dtype: np.dtype[Any]) -> float:
    return float(ml_dtypes.finfo(dtype).eps)


def _number(value: object) -> int | None:
    return value if isinstance(value, int) else None
