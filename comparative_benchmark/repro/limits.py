"""What a reproducer needs to judge outputs without the suite: the limits, as plain numbers.

The rules are those of `verification.verify` and `generation_verification.verify_free_run`; here
they are evaluated for a truth and a reference, so that what is left to do needs no more than NumPy.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from comparative_benchmark.harness.quantized_verification import MIN_SQNR, largest_error
from comparative_benchmark.harness.verification import (
    EPSILONS,
    FLOOR_IN_EPSILONS,
    MAX_ERROR_FACTOR,
    RMSE_FACTOR,
    open_array,
    verify,
)
from openxla.benchmark.models.architectures.base import DATA_TYPES
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
        found["generation"] = _generation(truth[LOGITS], reference[LOGITS], parameters, data_type)
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
            epsilon = EPSILONS.get(element_type_of(same_type.dtype), 0.0)
            limits["largest_error"] = _largest(
                verdict.max_abs_error or 0.0, epsilon, scale, parameters
            )
        else:
            limits["largest_error"] = largest_error(least, scale)
    return limits, None


def _generation(
    truth: Path, reference: Path, parameters: Mapping[str, float], data_type: str | None
) -> Limits:
    due, same_type = open_array(truth), open_array(reference)
    steps = due.shape[:2]
    squared = np.zeros(steps)
    for place in np.ndindex(*steps):
        squared[place] = _errors(due[place], same_type[place])[1] ** 2
    scale, rmse, largest = _errors(due, same_type)
    epsilon = EPSILONS[DATA_TYPES.get(str(data_type), "f32")]
    floor = parameters.get("rmse_floor", FLOOR_IN_EPSILONS * epsilon) * scale
    factor = parameters.get("rmse_factor", RMSE_FACTOR)
    return {
        "rmse": factor * rmse + floor,
        "step_rmse": (factor * np.maximum(rmse, np.sqrt(squared)) + floor).tolist(),
        "largest_error": _largest(largest, epsilon, scale, parameters),
        "tolerance": _tolerance(parameters),
    }


def _largest(
    reference_error: float, epsilon: float, scale: float, parameters: Mapping[str, float]
) -> float:
    floor = parameters.get("rmse_floor", FLOOR_IN_EPSILONS * epsilon)
    factor = parameters.get("rmse_factor", RMSE_FACTOR)
    return MAX_ERROR_FACTOR * factor * reference_error + 4 * floor * scale


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
