"""Precomputed limits with which a reproducer verifies outputs without the suite.

The rules are those in `verification.verify` and `generation_verification.verify_free_run`,
evaluated here for a truth and a reference, so that checking outputs needs only NumPy.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from comparative_benchmark.analysis.verification.error_limits import MIN_SQNR, groups_of
from comparative_benchmark.analysis.verification.generation_verification import limits_of
from comparative_benchmark.analysis.verification.verification import is_constant, open_array, verify
from comparative_benchmark.analysis.verification.verification import limits_of as limits_of_output
from openxla.benchmark.models.generation import LOGITS
from openxla.benchmark.models.preprocessing import element_type_of

Limits = dict[str, Any]
Array = npt.NDArray[Any]


def expected(
    truth: Sequence[Path],
    reference: Sequence[Path],
    parameters: Mapping[str, float],
    *,
    generates: bool,
    data_type: str | None,
) -> Limits:
    """Returns the contents of `expected.json` for `check.py`, except the recorded measurement.

    Args:
      truth: `.npy` files from the float64 run.
      reference: `.npy` files from the op-by-op run in the model's own type.
      parameters: parameters of the verification.
      generates: whether the outputs are generated tokens and their logits.
      data_type: the model's data type, e.g. `bf16`.

    Returns:
      `outputs`, the limits of each output; `generation`, those for generated text; and `problem`,
      the reason if outputs cannot be verified, otherwise None.
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
            "bias": generated.bias if np.isfinite(generated.bias) else None,
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
    """Returns the limits of an output, and the reason if they cannot be computed."""
    same_type = open_array(reference)
    # Judge the reference as a candidate to obtain its own error, and the largest allowed one.
    verdict = verify([reference], [truth], [reference], parameters)
    exact = same_type.dtype.kind in "iub"
    limits: Limits = {
        "dtype": same_type.dtype.name,
        "exact": exact,
        "relative_rmse": verdict.allowed_relative_rmse,
        "largest_error": None,
        "bias": None,
        "tolerance": _tolerance(parameters),
        "groups": [],
    }
    if verdict.relative_rmse is None and not verdict.passed:
        return limits, verdict.reason
    if not exact:
        found = limits_of_output(open_array(truth), same_type, parameters)
        if isinstance(found, str):
            return limits, found
        limits["largest_error"] = found.element
        limits["bias"] = found.bias if np.isfinite(found.bias) else None
        if MIN_SQNR not in parameters:
            limits["groups"] = _groups(open_array(truth), same_type, parameters)
    return limits, None


def _groups(truth: Array, reference: Array, parameters: Mapping[str, float]) -> list[Limits]:
    """Returns limits by position or magnitude; none if there are NaN or infinite values."""
    if not (np.isfinite(truth).all() and np.isfinite(reference).all()):
        return []
    if reference.dtype.kind == "c" or is_constant(truth):
        return []
    found = groups_of(reference, truth, reference, element_type_of(reference.dtype), parameters)
    return [
        {
            name: value
            for name, value in attrs.asdict(group).items()
            if name in ("axis", "index", "least", "below", "limit") and value is not None
        }
        for group in found
    ]


def _tolerance(parameters: Mapping[str, float]) -> list[float] | None:
    names = ("absolute_tolerance", "relative_tolerance")
    if not set(names) & set(parameters):
        return None
    return [parameters.get(name, 0.0) for name in names]
