"""What a reproducer needs to judge outputs without the suite: the limits, as plain numbers.

The rules are those of `verification.verify` and `generation_verification.verify_free_run`; here
they are evaluated for a truth and a reference, so that what is left to do needs no more than NumPy.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from comparative_benchmark.judge.generation_verification import limits_of
from comparative_benchmark.judge.quantized_verification import MIN_SQNR, largest_error
from comparative_benchmark.judge.verification import (
    FLOORS,
    MAX_ERROR_FACTOR,
    RMSE_FACTOR,
    open_array,
    verify,
)
from openxla.benchmark.models.generation import LOGITS
from openxla.benchmark.models.preprocessing import element_type_of

Limits = dict[str, Any]

# Elements at a time, so that memory stays small.
_CHUNK = 1 << 20


def expected(
    truth: Sequence[Path],
    reference: Sequence[Path],
    parameters: Mapping[str, float],
    *,
    generates: bool,
    data_type: str | None,
) -> Limits:
    """Returns what `check.py` reads of `expected.json`, except what was recorded.

    Args:
      truth: `.npy` files of the float64 run.
      reference: the same of the op-by-op run in the model's own type.
      parameters: of the verification.
      generates: whether the outputs are generated tokens and their logits.
      data_type: the model's, e.g. `bf16`.

    Returns:
      `outputs`, the limits of each; `generation`, those of generated text; and `problem`, why
      nothing can be judged. Unless there is one, the last is None.
    """
    found: Limits = {"outputs": [], "generation": None, "problem": None}
    if generates:
        found["outputs"] = [{"dtype": open_array(path).dtype.name} for path in reference]
        generated = limits_of(
            open_array(truth[LOGITS]), open_array(reference[LOGITS]), parameters, data_type
        )
        if isinstance(generated, str):
            return found | {"problem": generated}
        found["generation"] = {
            "rmse": generated.rmse,
            "step_rmse": generated.step_rmse.tolist(),
            "largest_error": generated.element,
            "tolerance": _tolerance(parameters),
        }
        return found
    for index, (due, same_type) in enumerate(zip(truth, reference, strict=True)):
        limits, problem = _output(due, same_type, parameters)
        found["outputs"].append(limits)
        if problem:
            found["problem"] = f"output {index}: {problem}"
    return found


def _output(
    truth: Path, reference: Path, parameters: Mapping[str, float]
) -> tuple[Limits, str | None]:
    """Returns the limits of an output, and why they are none."""
    same_type = open_array(reference)
    # The reference judged as a candidate: its own error, and what would just have passed.
    verdict = verify([reference], [truth], [reference], parameters)
    exact = same_type.dtype.kind in "iub"
    limits: Limits = {
        "dtype": same_type.dtype.name,
        "exact": exact,
        "relative_rmse": verdict.allowed_relative_rmse,
        "largest_error": None,
        "tolerance": _tolerance(parameters),
    }
    if verdict.relative_rmse is None and not verdict.passed:
        return limits, verdict.reason
    if not exact:
        scale, _, _ = _errors(open_array(truth), same_type)
        least = parameters.get(MIN_SQNR)
        if least is None:
            factor = parameters.get("rmse_factor", RMSE_FACTOR)
            type_floor = FLOORS.get(element_type_of(same_type.dtype), 0.0)
            floor = parameters.get("rmse_floor", type_floor) * scale
            error = verdict.max_abs_error or 0.0
            limits["largest_error"] = MAX_ERROR_FACTOR * factor * error + 4 * floor
        else:
            limits["largest_error"] = largest_error(least, scale)
    return limits, None


def _tolerance(parameters: Mapping[str, float]) -> list[float] | None:
    names = ("absolute_tolerance", "relative_tolerance")
    if not set(names) & set(parameters):
        return None
    return [parameters.get(name, 0.0) for name in names]


def _errors(truth: Any, values: Any) -> tuple[float, float, float]:
    """Returns root mean square of the truth and of the error, and the largest error."""
    squared_truth = squared = largest = 0.0
    flat_truth, flat = truth.reshape(-1), values.reshape(-1)
    for start in range(0, flat.size, _CHUNK):
        part = slice(start, start + _CHUNK)
        due = _widened(flat_truth[part])
        error = np.abs(_widened(flat[part]) - due)
        squared_truth += float(np.dot(due, due))
        squared += float(np.dot(error, error))
        largest = max(largest, float(error.max()))
    return math.sqrt(squared_truth / flat.size), math.sqrt(squared / flat.size), largest


def _widened(values: Any) -> Any:
    """Returns float64; of complex numbers, real and imaginary parts in turn."""
    if values.dtype.kind == "c":
        return values.astype(np.complex128).view(np.float64)
    return values.astype(np.float64)
