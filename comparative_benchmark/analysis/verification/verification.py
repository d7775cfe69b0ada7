"""Verification of outputs, before anything is timed, and again on the last timed output.

Method: the error of the candidate against a float64 run is compared with the error of a plain,
op-by-op run in the same type: overall, of its worst element, its mean (`error_limits`), and of its
parts (`groups_of`). NaN and infinity are compared by position, integers exactly.

An output that cannot be judged is not wrong: the verdict is then `undecided`.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import attrs
import ml_dtypes
import numpy as np
import numpy.typing as npt

from comparative_benchmark.analysis.verification.error_limits import (
    LARGEST_SHARE_OF_SPREAD,
    MIN_SQNR,
    ErrorLimits,
    error_limits,
    group_problem,
    groups_of,
    integer_problem,
    largest_error,
    regimes_of,
    sqnr_db,
    worst_share,
)
from openxla.benchmark.artifacts import array_files
from openxla.benchmark.models.preprocessing import element_type_of

# A reference further than this from the truth, relative to the spread, is useless.
MAX_REFERENCE_ERROR = 0.2
# Elements with a smaller relative spread count as constant: errors are relative to their size.
MIN_RELATIVE_SPREAD = 1e-6
# An element that is finite in the float64 run and not in the reference has no expected value. An
# output with more such elements cannot be judged.
_MOST_UNDUE = 0.5
# A runtime may stop at the largest number instead of infinity.
_NEARLY_INFINITE = 0.5
# So many spacings below the largest number, rounding alone may give infinity.
_OVERFLOWING = 8

_CHUNK = 1 << 20


@attrs.frozen(kw_only=True)
class Divergence:
    """A step at which a generating run did not choose the truth's token.

    Attributes:
      sequence, step: index in the batch, and index of the new token; both start from 0.
      token: the chosen token.
      due_token: the truth's token.
      margin: difference between the truth's logits for the two tokens.
      tolerance: largest margin that counts as a near-tie; above it, the token is wrong.
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
      passed: whether all outputs are correct.
      reason: the error, or why an output cannot be judged; None if all outputs are correct.
      undecided: whether an output could not be judged: it has not passed, but is not wrong either.
      judged: `integers` if only integers were compared, which proves nothing about precision; None
        otherwise, and in older files.
      relative_rmse: root mean square error relative to the truth's root mean square. It is the
        maximum over all outputs; None if it could not be computed.
      reference_relative_rmse: the reference's relative error for the same output.
      allowed_relative_rmse: the limit for `relative_rmse`.
      max_abs_error: largest absolute error of any element, over all outputs.
      worst_part: largest error of any part of an output (see `groups_of`), as a fraction of its
        limit; None if parts are not compared, and in older files.
      sqnr_db: signal-to-quantisation-noise ratio, minimum over all outputs; None if they are not
        verified by this ratio, or if they equal the truth.
      divergences: for a generating run, the steps at which its tokens differ from the truth's.
      tokens_fed: for a generating run, the tokens that it continued with: its `own`, or the
        `truth`'s.
    """

    passed: bool
    reason: str | None = None
    relative_rmse: float | None = None
    reference_relative_rmse: float | None = None
    allowed_relative_rmse: float | None = None
    max_abs_error: float | None = None
    worst_part: float | None = None
    sqnr_db: float | None = None
    divergences: tuple[Divergence, ...] = ()
    tokens_fed: Literal["own", "truth"] | None = None
    undecided: bool = False
    judged: Literal["integers"] | None = None


@attrs.frozen(kw_only=True)
class _Errors:
    """Sums over one output, computed in chunks so that memory stays small.

    Attributes:
      rmse, max_abs, bias: root mean square, largest and mean of the error.
      scale, spread: root mean square and standard deviation of the truth.
    """

    rmse: float
    max_abs: float
    bias: float
    scale: float
    spread: float

    @property
    def extent(self) -> float:
        """The spread of the truth; the size of its elements if they are nearly equal."""
        # Zeros have no scale: they are compared in spacings near one.
        return (self.scale if _is_constant(self) else self.spread) or 1.0


def verify(
    outputs: Sequence[Path],
    truth: Sequence[Path],
    reference: Sequence[Path],
    parameters: Mapping[str, float] = MappingProxyType({}),
    *,
    neighbours: Mapping[int, Path] = MappingProxyType({}),
    longest_sum: int = 1,
    least_db: Sequence[float | None] = (),
) -> Verification:
    """Compares output files with the files of the truth and the reference.

    Args:
      outputs: `.npy` files of the candidate, in order.
      truth: float64 files.
      reference: files in the model's own type; they define the expected types and shapes.
      parameters: `rmse_factor` and `rmse_floor` replace numbers of `error_limits`, `min_sqnr_db`
        the comparison with the reference (see `error_limits.MIN_SQNR_DB`); `absolute_tolerance` and
        `relative_tolerance` (together as in `numpy.allclose`) must hold in addition.
      neighbours: by output, float64 outputs of slightly different weights and inputs, stacked along
        a new first axis; for outputs of integers, and for small outputs.
      longest_sum: maximum number of terms that an element may sum; see `sum_length`.
      least_db: minimum ratio of each output, if it exceeds `min_sqnr_db`; may be empty.
    """
    if len(outputs) != len(truth):
        return failed(f"number of outputs: expected {len(truth)}, got {len(outputs)}")
    verdicts = []
    for index, paths in enumerate(zip(outputs, truth, reference, strict=True)):
        output, expected, same_type = map(open_array, paths)
        judged = _Output(
            name=f"output {index}",
            output=output,
            truth=expected,
            reference=same_type,
            parameters=_with_least(parameters, least_db[index] if least_db else None),
            neighbours=open_array(neighbours[index]) if index in neighbours else None,
            longest_sum=longest_sum,
        )
        verdicts.append(judged.verdict())
    if failures := [verdict for verdict in verdicts if not verdict.passed]:
        return min(failures, key=lambda verdict: verdict.undecided)
    numbers = [verdict for verdict in verdicts if verdict.relative_rmse is not None]
    if not numbers:
        return undecided("no output contains a finite number to judge")
    worst = max(numbers, key=lambda verdict: (verdict.judged is None, verdict.relative_rmse or 0.0))
    parts = [v.worst_part for v in numbers if v.worst_part is not None]
    return attrs.evolve(
        worst,
        max_abs_error=max(v.max_abs_error or 0.0 for v in numbers),
        worst_part=max(parts, default=None),
    )


def sum_length(inputs: Sequence[tuple[int, ...]], outputs: Sequence[tuple[int, ...]]) -> int:
    """Returns the maximum number of terms that an element of an output may sum.

    Only sums over inputs count: sums over weights are as long in the reference, and as inexact.

    Args:
      inputs: shapes of the inputs.
      outputs: shapes of the outputs.
    """
    longest = max((max(shape, default=1) for shape in inputs), default=1)
    largest = max((math.prod(shape) for shape in outputs), default=1)
    return max(longest, sum(map(math.prod, inputs)) // max(largest, 1), 1)


def relative_rmse(values: Path, truth: Path) -> float | None:
    """Returns the error of an output file, relative to the truth's root mean square.

    None if it holds no floating-point numbers, or the truth holds only zeros.
    """
    expected, actual = open_array(truth), open_array(values)
    if expected.dtype.kind not in "fV" or actual.shape != expected.shape or not expected.size:
        return None
    errors = _errors(actual, expected)
    return errors.rmse / errors.scale if errors.scale else None


def _with_least(parameters: Mapping[str, float], least_db: float | None) -> Mapping[str, float]:
    if least_db is None or MIN_SQNR not in parameters:
        return parameters
    return {**parameters, MIN_SQNR: max(parameters[MIN_SQNR], least_db)}


def form_problem(
    name: str, output: npt.NDArray[Any], truth: npt.NDArray[Any], reference: npt.NDArray[Any]
) -> str | None:
    """Returns the problem of an output's shape or type; None without one."""
    if output.shape != truth.shape:
        return f"{name} has shape {output.shape}, expected {truth.shape}"
    if output.dtype != reference.dtype:
        expected, got = element_type_of(reference.dtype), element_type_of(output.dtype)
        return f"{name} has type {got}, expected {expected}"
    return None


def finite_problem(
    name: str, output: npt.NDArray[Any], truth: npt.NDArray[Any], reference: npt.NDArray[Any]
) -> Verification | None:
    """Returns the verdict on an output that must be finite and is not; None if it is."""
    if not _all_finite(truth):
        return undecided(f"{name}: the truth contains NaN or infinity")
    if not _all_finite(reference):
        return undecided(f"{name}: the plain run in the model's data type produced NaN or infinity")
    return None if _all_finite(output) else failed(f"{name} contains NaN or infinity")


@attrs.define(kw_only=True)
class _Output:
    """One output with the data to verify it; see `verify`."""

    name: str
    output: npt.NDArray[Any]
    truth: npt.NDArray[Any]
    reference: npt.NDArray[Any]
    parameters: Mapping[str, float]
    neighbours: npt.NDArray[Any] | None
    longest_sum: int
    whole: tuple[npt.NDArray[Any], ...] = ()
    doubt: str | None = None

    def verdict(self) -> Verification:
        if problem := form_problem(self.name, self.output, self.truth, self.reference):
            return failed(problem)
        if self.output.size == 0:
            return Verification(passed=True)
        if self.output.dtype.kind in "iub":
            near = () if self.neighbours is None else tuple(self.neighbours)
            problem, is_wrong = integer_problem(self.output, self.truth, self.reference, near)
            if problem:
                # Quantisation moves weights further than the neighbours.
                certain = is_wrong and MIN_SQNR not in self.parameters
                return (failed if certain else undecided)(f"{self.name}: {problem}")
            return Verification(
                passed=True, relative_rmse=0.0, max_abs_error=0.0, judged="integers"
            )
        self._separate_parts()
        self.whole = (self.output, self.truth, self.reference)
        if not all(map(_all_finite, self.whole)) and (verdict := self._without_infinities()):
            return verdict
        verdict = self.judge() if self.output.size else Verification(passed=True)
        if verdict.passed and self.neighbours is not None and MIN_SQNR not in self.parameters:
            # Errors of the largest of a few numbers hide the errors of the others.
            parts = (self._part(where).judge() for where in regimes_of(self.truth.reshape(-1)))
            verdict = next((p for p in parts if not p.passed and not p.undecided), verdict)
        return undecided(self.doubt) if verdict.passed and self.doubt else verdict

    def _part(self, where: npt.NDArray[np.bool_]) -> "_Output":
        """Returns some elements as an output without shape."""
        assert self.neighbours is not None
        near = self.neighbours.reshape(len(self.neighbours), -1)[:, where]
        arrays = (self.output, self.truth, self.reference)
        output, truth, reference = whole = tuple(value.reshape(-1)[where] for value in arrays)
        return attrs.evolve(
            self, output=output, truth=truth, reference=reference, neighbours=near, whole=whole
        )

    def _separate_parts(self) -> None:
        """Converts complex numbers to real and imaginary parts along a new last axis."""
        if self.reference.dtype.kind != "c":
            return
        self.output, self.reference = _real_parts(self.output), _real_parts(self.reference)
        self.truth = _real_parts(self.truth.astype(np.complex128))
        if self.neighbours is not None:
            self.neighbours = _real_parts(self.neighbours.astype(np.complex128))

    def _without_infinities(self) -> Verification | None:
        """Compares NaN and infinity by position, and removes them from the output.

        Returns:
          The verdict if some are wrong, or too many cannot be judged; otherwise None.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            expected = self.truth.astype(self.reference.dtype)
        finite = np.isfinite(expected)
        info = ml_dtypes.finfo(self.output.dtype)
        largest = float(info.max)
        special = ~finite & _is_kind(self.reference, expected, largest)
        overflown = np.isinf(self.output) & (np.sign(self.output) == np.sign(expected))
        overflown &= np.abs(self.truth) >= largest * (1 - _OVERFLOWING * float(info.eps))
        if wrong := int(np.count_nonzero(special & ~_is_kind(self.output, expected, largest))):
            return failed(f"{self.name}: elements without the expected NaN or infinity: {wrong}")
        regular = finite & np.isfinite(self.reference) & ~overflown
        if wrong := int(np.count_nonzero(regular & ~np.isfinite(self.output))):
            where = f"elements that should be finite ({wrong} of {expected.size})"
            return failed(f"{self.name} contains NaN or infinity in {where}")
        undue = ~(special | regular | overflown)
        doubt = (
            f"{self.name}: the plain run in the model's data type and the float64 run have NaN or "
            f"infinity in different elements ({undue.sum()} of {expected.size})"
        )
        if undue.sum() > _MOST_UNDUE * expected.size:
            return undecided(doubt)
        alike = ~np.isfinite(self.output) & ~np.isfinite(self.reference)
        alike |= ~finite & _is_kind(self.output, expected, largest)
        near = np.where(finite, self.truth, self.reference)
        off = np.abs(self.output.astype(np.float64)[undue & ~alike] - near[undue & ~alike])
        spread = self.truth[finite].std() if finite.any() else 0.0
        if not (off <= LARGEST_SHARE_OF_SPREAD * spread).all():
            self.doubt = f"{doubt}; this run produced other numbers there"
        self.output, self.truth = self.output[regular], self.truth[regular]
        self.reference = self.reference[regular]
        if self.neighbours is not None:
            self.neighbours = self.neighbours[:, regular]
        return None

    def judge(self) -> Verification:
        output, truth, reference = self.output, self.truth, self.reference
        parameters = self.parameters
        errors, reference_errors = _errors(output, truth), _errors(reference, truth)
        scale = errors.scale
        noise = _noise(self.neighbours, truth)
        limits = _limits(reference, reference_errors, parameters, self.longest_sum, noise)
        if isinstance(limits, str):
            return undecided(f"{self.name}: {limits}")
        least = parameters.get(MIN_SQNR)
        sqnr = None if least is None else sqnr_db(errors.rmse / scale if scale else errors.rmse)
        unit = scale or 1.0
        figures: dict[str, Any] = {
            "relative_rmse": _finite(errors.rmse / unit),
            "reference_relative_rmse": reference_errors.rmse / unit,
            "allowed_relative_rmse": limits.rmse / unit,
            "max_abs_error": _finite(errors.max_abs),
            "sqnr_db": None if sqnr is None else _finite(sqnr),
        }
        reason = None
        if sqnr is not None and not errors.rmse <= limits.rmse:
            reason = f"SQNR {sqnr:.1f} dB is below {sqnr_db(limits.rmse / unit):.3g} dB"
        elif not errors.rmse <= limits.needed:
            allowed = limits.rmse / unit
            reason = f"relative error {errors.rmse / unit:.2g} exceeds {allowed:.2g}"
        elif errors.max_abs > limits.element and (problem := _stray_element(output, truth, limits)):
            reason = problem
        elif abs(errors.bias) > limits.bias:
            reason = (
                f"elements are off by {errors.bias:.2g} on average; the limit is {limits.bias:.2g}"
            )
        else:
            reason = _beyond_tolerance(output, truth, parameters)
            if reason is None and least is None and not _is_constant(errors):
                kind = element_type_of(reference.dtype)
                whole = self.whole
                parts = groups_of(whole[0], whole[1], whole[2], kind, parameters, self.longest_sum)
                reason = group_problem(parts)
                figures["worst_part"] = _finite(worst_share(parts))
        if reason:
            return Verification(passed=False, reason=f"{self.name}: {reason}", **figures)
        if errors.rmse > limits.rmse:
            what = "value" if _is_constant(errors) else "spread"
            return Verification(
                passed=False,
                undecided=True,
                reason=f"{self.name}: the plain run in the model's data type is off by "
                f"{reference_errors.rmse / errors.extent:.2g} times the {what}, and this run by "
                f"{errors.rmse / errors.extent:.2g}, so the comparison is inconclusive",
                **figures,
            )
        return Verification(passed=True, **figures)


def limits_of(
    truth: npt.NDArray[Any],
    reference: npt.NDArray[Any],
    parameters: Mapping[str, float],
    longest_sum: int = 1,
    neighbours: npt.NDArray[Any] | None = None,
) -> ErrorLimits | str:
    """Returns the limits of a non-integer output, or why nothing can be judged; see `verify`."""
    if reference.dtype.kind == "c":
        truth, reference = _real_parts(truth.astype(np.complex128)), _real_parts(reference)
        if neighbours is not None:
            neighbours = _real_parts(neighbours.astype(np.complex128))
    errors, noise = _errors(reference, truth), _noise(neighbours, truth)
    return _limits(reference, errors, parameters, longest_sum, noise)


def _noise(neighbours: npt.NDArray[Any] | None, truth: npt.NDArray[Any]) -> float:
    """Returns the root mean square difference of the neighbours from the truth."""
    if neighbours is None:
        return 0.0
    with np.errstate(invalid="ignore"):
        off = neighbours.astype(np.float64) - truth
    return float(np.sqrt(np.mean(np.square(off[np.isfinite(off)])))) if off.size else 0.0


def _limits(
    reference: npt.NDArray[Any],
    errors: _Errors,
    parameters: Mapping[str, float],
    longest_sum: int,
    noise: float,
) -> ErrorLimits | str:
    constant = _is_constant(errors)
    if errors.rmse > MAX_REFERENCE_ERROR * errors.extent:
        return (
            f"the plain run in the model's data type is off by {errors.rmse / errors.extent:.2g} "
            f"times the {'value' if constant else 'spread'}, so nothing can be judged"
        )
    own = error_limits(
        element_type_of(reference.dtype),
        rmse=errors.rmse,
        largest=errors.max_abs,
        spread=0.0 if constant else errors.spread,
        size=reference.size,
        parameters=parameters,
        scale=errors.scale or 1.0,
        longest_sum=longest_sum,
        noise=noise,
    )
    if (least := parameters.get(MIN_SQNR)) is None:
        return own
    # Outputs that a recipe does not change may have the error of any program of this type.
    allowed = max(errors.scale * 10 ** (-least / 20), own.rmse)
    return ErrorLimits(
        rmse=allowed,
        needed=allowed,
        element=max(largest_error(least, errors.scale), own.element),
        # Few large elements hold most of the error if they hold most of the output.
        relative_element=max(largest_error(least, 1.0) / 2, own.relative_element),
        bias=np.inf,
    )


def is_constant(truth: npt.NDArray[Any]) -> bool:
    """Returns whether all elements are nearly equal, so that errors are relative to their size."""
    return _is_constant(_errors(truth, truth))


def _is_constant(errors: _Errors) -> bool:
    return errors.spread <= MIN_RELATIVE_SPREAD * errors.scale


def _is_kind(
    values: npt.NDArray[Any], expected: npt.NDArray[Any], largest: float
) -> npt.NDArray[np.bool_]:
    """Returns where values are NaN or infinite as expected, or as large as the type allows."""
    wide = values.astype(np.float64)
    beyond = (np.abs(wide) >= _NEARLY_INFINITE * largest) & (np.sign(wide) == np.sign(expected))
    kind: npt.NDArray[np.bool_] = np.where(np.isnan(expected), np.isnan(wide), beyond)
    return kind


def _real_parts(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    part = values.real.dtype
    return np.ascontiguousarray(values[..., None]).view(part)


def _stray_element(
    output: npt.NDArray[Any], truth: npt.NDArray[Any], limits: ErrorLimits
) -> str | None:
    """Returns a message if the worst element exceeds its limit; None if none does."""
    off, allowed = 0.0, np.inf
    for candidate, expected in _chunks(output, truth):
        errors = np.abs(candidate - expected)
        bounds = np.maximum(limits.element, limits.relative_element * np.abs(expected))
        worst = int(np.argmax(errors / bounds))
        if errors[worst] / bounds[worst] > off / allowed:
            off, allowed = float(errors[worst]), float(bounds[worst])
    return f"an element is off by {off:.2g}; the limit is {allowed:.2g}" if off > allowed else None


def _beyond_tolerance(
    output: npt.NDArray[Any], truth: npt.NDArray[Any], parameters: Mapping[str, float]
) -> str | None:
    if not {"absolute_tolerance", "relative_tolerance"} & set(parameters):
        return None
    absolute = parameters.get("absolute_tolerance", 0.0)
    relative = parameters.get("relative_tolerance", 0.0)
    for candidate, expected in _chunks(output, truth):
        if np.any(np.abs(candidate - expected) > absolute + relative * np.abs(expected)):
            return f"exceeds absolute tolerance {absolute:g} and relative tolerance {relative:g}"
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
        yield flat[part].astype(np.float64), flat_truth[part].astype(np.float64)


def _all_finite(values: npt.NDArray[Any]) -> bool:
    flat = values.reshape(-1)
    parts = (flat[start : start + _CHUNK] for start in range(0, flat.size, _CHUNK))
    return all(bool(np.isfinite(part.astype(np.float64)).all()) for part in parts)


def _finite(figure: float) -> float | None:
    return figure if np.isfinite(figure) else None


def open_array(path: Path) -> npt.NDArray[Any]:
    """Returns the array of a file, mapped into memory."""
    return array_files.load(path, memory_map=True)


def failed(reason: str) -> Verification:
    """Returns the verdict on an output that is wrong and has no figures."""
    return Verification(passed=False, reason=reason)


def undecided(reason: str) -> Verification:
    """Returns the verdict on an output that cannot be judged."""
    return Verification(passed=False, undecided=True, reason=reason)
