"""Is the output right? Judged before anything is timed, and again on the last timed output.

Method: the error of the candidate against a float64 run is compared with the error that a plain,
op-by-op run in the same type makes: all of it, its worst element and its mean (`error_limits`).
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import attrs
import numpy as np
import numpy.typing as npt

from comparative_benchmark.judge.error_limits import ErrorLimits, error_limits
from comparative_benchmark.judge.quantized_verification import MIN_SQNR, largest_error, sqnr_db
from openxla.benchmark.artifacts import arrays
from openxla.benchmark.models.preprocessing import element_type_of

# A reference further than this from the truth, relative to the spread, measures nothing.
MAX_REFERENCE_ERROR = 0.2
# Below this relative spread an output carries no signal, and agreement means nothing.
MIN_RELATIVE_SPREAD = 1e-6

_CHUNK = 1 << 20


@attrs.frozen(kw_only=True)
class Divergence:
    """Where a generating run took another token than the truth.

    Attributes:
      sequence, step: which of the batch, and which of its new tokens, both from 0 on.
      token: what it took; `due_token` is what the truth takes.
      margin: by how much the truth prefers its own: the difference of the two logits.
      tolerance: how large the margin of a near-tie may be; above it the token is wrong.
    """

    sequence: int
    step: int
    token: int
    due_token: int
    margin: float
    tolerance: float


@attrs.frozen(kw_only=True)
class Verification:
    """Verdict on the outputs of one run.

    Attributes:
      passed: whether all outputs are right.
      reason: what is wrong, None if nothing is.
      relative_rmse: root mean square error against the truth, divided by the root mean square of
        the truth; the largest over the outputs; None where it could not be computed.
      reference_relative_rmse: the same for the reference, of the same output.
      allowed_relative_rmse: what would just have passed.
      max_abs_error: largest absolute error of an element over all outputs.
      sqnr_db: signal-to-quantisation-noise ratio in dB, the least over the outputs, where that is
        what they are judged by; None also where there is no error at all.
      divergences: of a generating run, where it left the truth's tokens; empty if nowhere.
      tokens_fed: of a generating run, whose tokens it went on with: its `own`, or the `truth`'s.
    """

    passed: bool
    reason: str | None = None
    relative_rmse: float | None = None
    reference_relative_rmse: float | None = None
    allowed_relative_rmse: float | None = None
    max_abs_error: float | None = None
    sqnr_db: float | None = None
    divergences: tuple[Divergence, ...] = ()
    tokens_fed: Literal["own", "truth"] | None = None


@attrs.frozen(kw_only=True)
class _Errors:
    """Sums over one output, taken in chunks so that memory stays small.

    Attributes:
      rmse, max_abs, bias: root mean square, largest and mean of the error.
      scale, spread: root mean square and standard deviation of the truth.
    """

    rmse: float
    max_abs: float
    bias: float
    scale: float
    spread: float


def verify(
    outputs: Sequence[Path],
    truth: Sequence[Path],
    reference: Sequence[Path],
    parameters: Mapping[str, float] = MappingProxyType({}),
) -> Verification:
    """Compares output files with those of the truth and the reference.

    Args:
      outputs: `.npy` files of the candidate, in order.
      truth: float64 files.
      reference: files in the model's own type; they say which type and shape are due.
      parameters: `rmse_factor` and `rmse_floor` replace numbers of `error_limits`, `min_sqnr_db`
        the comparison with the reference (see `quantized_verification`); `absolute_tolerance` and
        `relative_tolerance` (together as in `numpy.allclose`) must hold in addition.
    """
    if len(outputs) != len(truth):
        return failed(f"{len(outputs)} outputs where {len(truth)} are due")
    verdicts = [
        _verify_one(
            f"output {index}",
            open_array(output),
            open_array(due),
            open_array(same_type),
            parameters,
        )
        for index, (output, due, same_type) in enumerate(
            zip(outputs, truth, reference, strict=True)
        )
    ]
    wrong = [verdict for verdict in verdicts if not verdict.passed]
    if wrong or not verdicts:
        return wrong[0] if wrong else failed("there are no outputs")
    worst = max(verdicts, key=lambda verdict: verdict.relative_rmse or 0.0)
    largest = max((v.max_abs_error or 0.0 for v in verdicts), default=None)
    return attrs.evolve(worst, max_abs_error=largest)


def _verify_one(
    name: str,
    output: npt.NDArray[Any],
    truth: npt.NDArray[Any],
    reference: npt.NDArray[Any],
    parameters: Mapping[str, float],
) -> Verification:
    if problem := form_problem(name, output, truth, reference):
        return failed(problem)
    return _judge(name, output, truth, reference, parameters)


def form_problem(
    name: str, output: npt.NDArray[Any], truth: npt.NDArray[Any], reference: npt.NDArray[Any]
) -> str | None:
    """Returns what is wrong with an output before its numbers are looked at; None if nothing is."""
    if output.shape != truth.shape:
        return f"{name} has the shape {output.shape} where {truth.shape} is due"
    if output.dtype != reference.dtype:
        due, got = element_type_of(reference.dtype), element_type_of(output.dtype)
        return f"{name} has the type {got} where {due} is due"
    if output.size == 0:
        return f"{name} is empty"
    if not _all_finite(truth):
        return f"{name}: the truth itself holds NaN or infinity, so nothing can be judged"
    if not _all_finite(reference):
        return f"{name}: the reference run in this type gave NaN or infinity"
    if not _all_finite(output):
        return f"{name} holds NaN or infinity"
    return None


def _judge(
    name: str,
    output: npt.NDArray[Any],
    truth: npt.NDArray[Any],
    reference: npt.NDArray[Any],
    parameters: Mapping[str, float],
) -> Verification:
    errors, reference_errors = _errors(output, truth), _errors(reference, truth)
    scale = errors.scale
    if scale == 0 or errors.spread <= MIN_RELATIVE_SPREAD * scale:
        return failed(f"{name} is due to be constant, which carries no signal to be judged by")
    if output.dtype.kind in "iub":
        # No rounding, no tolerance; int64 would lose digits in float64.
        different = int(np.count_nonzero(output != reference))
        if different:
            return failed(f"{name}: {different} of {output.size} integers differ")
        return Verification(passed=True, relative_rmse=0.0, max_abs_error=0.0)
    limits = _limits(reference, reference_errors, parameters)
    if isinstance(limits, str):
        return failed(f"{name}: {limits}")
    least = parameters.get(MIN_SQNR)
    sqnr = None if least is None else sqnr_db(errors.rmse / scale)
    allowed = limits.rmse / scale
    figures: dict[str, Any] = {
        "relative_rmse": _finite(errors.rmse / scale),
        "reference_relative_rmse": reference_errors.rmse / scale,
        "allowed_relative_rmse": allowed,
        "max_abs_error": _finite(errors.max_abs),
        "sqnr_db": None if sqnr is None else _finite(sqnr),
    }
    reason = None
    if sqnr is not None and least is not None and sqnr < least:
        reason = f"SQNR {sqnr:.1f} dB is below {least:g} dB"
    elif not errors.rmse / scale <= allowed:
        reason = f"relative error {errors.rmse / scale:.2g} exceeds {allowed:.2g}"
    elif errors.max_abs > limits.element and (stray := _stray_element(output, truth, limits)):
        reason = stray
    elif abs(errors.bias) > limits.bias:
        reason = f"all are off by {errors.bias:.2g} on average, more than {limits.bias:.2g}"
    else:
        reason = _beyond_tolerance(output, truth, parameters)
    if reason:
        return Verification(passed=False, reason=f"{name}: {reason}", **figures)
    return Verification(passed=True, **figures)


def limits_of(
    truth: npt.NDArray[Any], reference: npt.NDArray[Any], parameters: Mapping[str, float]
) -> ErrorLimits | str:
    """Returns the limits of an output that is not of integers, or why nothing can be judged."""
    return _limits(reference, _errors(reference, truth), parameters)


def _limits(
    reference: npt.NDArray[Any], errors: _Errors, parameters: Mapping[str, float]
) -> ErrorLimits | str:
    if errors.rmse > MAX_REFERENCE_ERROR * errors.spread:
        return (
            f"the reference run in this type is itself off by {errors.rmse / errors.spread:.2g} "
            "of the spread, so nothing can be judged"
        )
    if (least := parameters.get(MIN_SQNR)) is not None:
        return ErrorLimits(
            rmse=errors.scale * 10 ** (-least / 20),
            element=largest_error(least, errors.scale),
            bias=np.inf,
        )
    return error_limits(
        element_type_of(reference.dtype),
        rmse=errors.rmse,
        largest=errors.max_abs,
        spread=errors.spread,
        size=reference.size,
        parameters=parameters,
    )


def _stray_element(
    output: npt.NDArray[Any], truth: npt.NDArray[Any], limits: ErrorLimits
) -> str | None:
    """Returns by how much the worst element exceeds what is allowed; None if none does."""
    off, allowed = 0.0, np.inf
    for candidate, expected in _chunks(output, truth):
        errors = np.abs(candidate - expected)
        bounds = np.maximum(limits.element, limits.relative_element * np.abs(expected))
        worst = int(np.argmax(errors / bounds))
        if errors[worst] / bounds[worst] > off / allowed:
            off, allowed = float(errors[worst]), float(bounds[worst])
    return f"an element is off by {off:.2g}, more than {allowed:.2g}" if off > allowed else None


def _beyond_tolerance(
    output: npt.NDArray[Any], truth: npt.NDArray[Any], parameters: Mapping[str, float]
) -> str | None:
    if not {"absolute_tolerance", "relative_tolerance"} & set(parameters):
        return None
    absolute = parameters.get("absolute_tolerance", 0.0)
    relative = parameters.get("relative_tolerance", 0.0)
    for candidate, expected in _chunks(output, truth):
        if np.any(np.abs(candidate - expected) > absolute + relative * np.abs(expected)):
            return f"beyond absolute tolerance {absolute:g}, relative tolerance {relative:g}"
    return None


def _errors(values: npt.NDArray[Any], truth: npt.NDArray[Any]) -> _Errors:
    squared = squared_truth = total_truth = total = 0.0
    max_abs = 0.0
    for candidate, expected in _chunks(values, truth):
        difference = candidate - expected
        with np.errstate(over="ignore"):  # infinity exceeds every limit
            squared += float(np.dot(difference, difference))
            total += float(difference.sum())
        squared_truth += float(np.dot(expected, expected))
        total_truth += float(expected.sum())
        max_abs = max(max_abs, float(np.abs(difference).max()))
    mean_square, mean = squared_truth / truth.size, total_truth / truth.size
    return _Errors(
        rmse=float(np.sqrt(squared / truth.size)),
        max_abs=max_abs,
        bias=total / truth.size,
        scale=float(np.sqrt(mean_square)),
        spread=float(np.sqrt(max(mean_square - mean * mean, 0.0))),
    )


def _chunks(
    values: npt.NDArray[Any], truth: npt.NDArray[Any]
) -> Iterator[tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]]:
    flat, flat_truth = values.reshape(-1), truth.reshape(-1)
    for start in range(0, flat.size, _CHUNK):
        part = slice(start, start + _CHUNK)
        yield _widened(flat[part]), _widened(flat_truth[part])


def _all_finite(values: npt.NDArray[Any]) -> bool:
    flat = values.reshape(-1)
    parts = (flat[start : start + _CHUNK] for start in range(0, flat.size, _CHUNK))
    return all(bool(np.isfinite(_widened(part)).all()) for part in parts)


def _widened(part: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Returns float64; of complex numbers, real and imaginary parts in turn."""
    if part.dtype.kind == "c":
        return part.astype(np.complex128).view(np.float64)
    return part.astype(np.float64)


def _finite(figure: float) -> float | None:
    return figure if np.isfinite(figure) else None


def open_array(path: Path) -> npt.NDArray[Any]:
    """Returns the array of a file, mapped into memory."""
    return arrays.load(path, memory_map=True)


def failed(reason: str) -> Verification:
    """Returns the verdict on an output that has no figures."""
    return Verification(passed=False, reason=reason)
