"""Finds runtimes whose outputs agree with each other, but not with the truth."""

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from comparative_benchmark.analysis.verification.verification import limits_of, open_array


def agreeing(
    outputs: Mapping[str, Sequence[Path]],
    truth: Sequence[Path],
    reference: Sequence[Path],
    parameters: Mapping[str, float] = MappingProxyType({}),
) -> tuple[str, str] | None:
    """Returns the first two runtimes whose outputs agree within the limits of a right output.

    Args:
      outputs: files of each runtime, by its name; all of them differ from the truth.
      truth: float64 files.
      reference: files in the model's own type.
      parameters: see `verification.verify`.
    """
    for one, other in itertools.combinations(outputs, 2):
        files = zip(outputs[one], outputs[other], truth, reference, strict=False)
        if len(outputs[one]) == len(outputs[other]) == len(truth) and all(
            _agree(*paths, parameters) for paths in files
        ):
            return one, other
    return None


def _agree(
    one: Path, other: Path, truth: Path, reference: Path, parameters: Mapping[str, float]
) -> bool:
    first, second = open_array(one), open_array(other)
    if first.shape != second.shape or first.dtype != second.dtype:
        return False
    if first.dtype.kind not in "fc" and first.dtype.name != "bfloat16":
        return bool(np.array_equal(first, second))
    expected = open_array(truth)
    limits = limits_of(expected, open_array(reference), parameters)
    if isinstance(limits, str):
        return False
    # Each may be off by the limit, which applies to outputs as large as the truth.
    allowed = 2 * limits.rmse * max(1.0, _rms(first) / _rms(expected))
    # NaN agrees with nothing.
    return _rms(_wide(first) - _wide(second)) <= allowed


def _wide(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return values.astype(np.complex128 if values.dtype.kind == "c" else np.float64)


def _rms(values: npt.NDArray[Any]) -> float:
    return float(np.sqrt(np.mean(np.abs(_wide(values)) ** 2)))
