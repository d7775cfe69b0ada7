"""Error limits of outputs and their parts: above errors of right programs, below coarser types'.

The measure is the error of a plain, op-by-op run in the same type (as in PyTorch's Inductor tests,
`torch._dynamo.utils.same`). A compiler may add in another order and round less often; it may not
compute in a coarser type. The factors lie between the two, measured on the tiny models
(`benchmarks/separation.py`, docs/concepts/separation.md).

The largest elements dominate the root mean square of a whole output. Logits next to a mask of -1e9,
or scores next to pixel coordinates, could be anything. So elements are also compared in groups, of
similar magnitude and of equal position along an axis, each with the reference's error in the same
group.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

# A few neighbours miss some of the elements next to a tie: the number of flips that none of them
# shows may be this share of the number of elements that change among them.
_MISSED_SHARE = 0.1

MIN_SQNR = "min_sqnr_db"

# By precision, in dB; docs/design/0010-tflite.md has the measurements.
MIN_SQNR_DB: Mapping[str, float] = MappingProxyType(
    {"fp16-weights": 50.0, "dynamic-range": 20.0, "int8": 15.0}
)
# Noise spreads over an output, a wrong element stands out: no element may be off by more than this
# multiple of the largest root mean square error that passes.
MAX_ELEMENT_FACTOR = 8.0

# Spacing of numbers near one.
EPSILONS = {
    "f64": 2.0**-52,
    "f32": 2.0**-23,
    "f16": 2.0**-10,
    "bf16": 2.0**-7,
    "complex64": 2.0**-23,
    "complex128": 2.0**-52,
}
# Smaller numbers lose digits, and some runtimes flush them to zero.
SMALLEST_NORMAL = {"f64": 2.0**-1022, "f32": 2.0**-126, "f16": 2.0**-14, "bf16": 2.0**-126}
# Maximum error of a candidate relative to the reference's. The next coarser type has errors some 3
# times as large (int8 versus bf16), 5 times (bf16 versus fp16), 80 times (TF32 versus fp32).
RMSE_FACTORS = {"f16": 2.5, "bf16": 1.9}
_RMSE_FACTOR = 6.0
# Root mean squares of few elements scatter: an estimate's relative deviation is about 1/sqrt(2 N).
_SCATTER = 2.0
# Minimum limit in spacings near one, relative to the spread, in case the reference is right by
# luck. Rounding a result to its type costs 0.2. Of ONNX's own tests of operators, right outputs of
# ONNX Runtime and OpenVINO are off by at most 6.9 (a cubic Resize), and 1.5 (erf).
_FLOORS_IN_EPSILONS = {"f16": 0.5, "bf16": 0.5}
_FLOOR_IN_EPSILONS = 8.0
# A sum of n terms one after the other is off by about eps * sqrt(n) (Higham 1993, "The accuracy of
# floating point summation"); PyTorch computes some sums in double, and its error then does not show
# this. ONNX Runtime's and OpenVINO's cumulative sums of 100,000 numbers are off by half of this.
_LONG_SUM = 0.25
# Programs sum in float32 even if they store these types.
_SUMMED_IN = {"f16": "f32", "bf16": "f32"}
# An allowed error beyond this share of the spread would accept almost anything.
LARGEST_SHARE_OF_SPREAD = 0.1
# Relative to `noise`, for few numbers, for which the reference's error is a matter of chance.
_NOISE_FACTOR = 10.0
# No single element may be off by more than the allowed factor times `_ELEMENT_FACTOR` times the
# reference's worst error, or `_ELEMENTS_IN_RMSE` times its root mean square if that is larger:
# rounding errors spread like noise, a wrong element stands out. In right runs the worst is 4 to 11
# times the root mean square.
_ELEMENT_FACTOR = 1.25
_ELEMENTS_IN_RMSE = 8.0
# Elements may always be off by this many spacings of numbers as large as themselves: outputs such
# as gradients have elements far outside the spread, whose rounding alone exceeds the limit above
# (seen: 1.5 spacings).
_ELEMENT_IN_EPSILONS = 2.5
# Errors have either sign: the mean error may be at most this share of the root mean square's limit
# (0.1 in right runs), more if there are few elements.
_BIAS_SHARE = 0.25
_BIAS_SCATTER = 4.0
# Runtimes may cut results to 16 bits instead of rounding them. OpenVINO does so on CPUs without
# AVX-512, in a part of each row: the mean of a softmax is off by 0.17 spacings of numbers near one.
_CUT_SHARES = {"f16": 0.25, "bf16": 0.25}

# Smaller groups prove nothing: their root mean squares scatter by a fifth and more.
_FEWEST = 16
# A group's limit relative to the whole output's: there are hundreds of groups, and errors within
# one row resemble each other. In 16 bits the next coarser type is too close for more.
_GROUP_FACTORS = {"f16": 2.0, "bf16": 2.0}
_GROUP_FACTOR = 4.0

# Magnitudes are grouped by factors of eight. A gap of two empty groups ends a regime: beyond it is
# a mask or another quantity, whose rounding does not affect this one.
_OCTAVES = 3
_GAP = 2
# Bounded functions (sigmoid, tanh, softmax, erf) are exact to a few spacings near one. Far out in a
# tail their values are smaller than that, and right programs may differ by all of the value.
_UNIT = 1.0
# A slice with fewer large elements is an outlier among small ones: (sum t^2)^2 / (n sum t^4).
_LEAST_PARTICIPATION = 0.1
# The slices of a longer axis differ in content, not in meaning, and are too many to distinguish.
_LONGEST_AXIS = 4096
_CHUNK = 1 << 20
_LEAST_EXPONENT, _EXPONENTS = -1080, 2112
# The group of zeros, and of numbers that lose digits: no other number is as small.
_ZEROS = 0
# Participation of numbers that are equal, apart from rounding.
_EQUAL = 1 - 1e-9


def integer_problem(
    output: Array, truth: Array, reference: Array, neighbours: Sequence[Array] = ()
) -> tuple[str | None, bool]:
    """Returns the problem of an output of integers or booleans, and whether it is wrong.

    The problem is None if all elements are right. An output that differs only where neighbours
    differ is not wrong: equal elements can be sorted in many ways.

    Args:
      output: output of the candidate; all arrays have its shape.
      truth: output of the float64 run.
      reference: output of the run in the model's own type; it has the type of `output`.
      neighbours: float64 outputs on slightly different weights and inputs, if there are any.
    """
    different = output != reference
    if not (count := int(np.count_nonzero(different))):
        return None, False
    explained, unstable = np.zeros_like(different), np.zeros_like(different)
    for value in (truth, *neighbours):
        other = value.astype(reference.dtype)
        explained |= output == other
        unstable |= reference != other
    unexplained = different & ~explained
    missed = _MISSED_SHARE * int(np.count_nonzero(unstable))
    if (number := int(np.count_nonzero(unexplained))) <= missed:
        return None, False
    is_wrong = int(np.count_nonzero(unexplained & ~unstable)) > missed
    at_ties = count - number if is_wrong else int(np.count_nonzero(different & unstable))
    ties = f", {at_ties} of them at near-ties in the float64 run" if at_ties else ""
    return f"integers that differ: {count} of {output.size}{ties}", is_wrong


def parameters_for(
    precision: str | None, data_type: str | None, given: Mapping[str, float]
) -> dict[str, float]:
    """Returns the verify parameters of a case for a program of a precision.

    Args:
      precision: the type that the compiler quantises to; None if it keeps the model's type.
      data_type: data type of the workload; a case that is a quantised file has its own precision.
      given: verify parameters of the case. Tolerances of an unquantised case do not apply to a
        program that the compiler quantised: only `min_sqnr_db` does.
    """
    effective = precision or data_type or ""
    if effective not in MIN_SQNR_DB:
        return dict(given)
    minimum = {MIN_SQNR: MIN_SQNR_DB[effective]}
    if effective != data_type:
        return {**minimum, **{name: given[name] for name in (MIN_SQNR,) if name in given}}
    return {**minimum, **given}


def sqnr_db(relative_rmse: float) -> float:
    """Returns the ratio for an error relative to the truth's root mean square; infinity for 0."""
    return -20 * math.log10(relative_rmse) if relative_rmse > 0 else math.inf


def largest_error(minimum_db: float, scale: float) -> float:
    """Returns the maximum error of a single element, in the output's own unit.

    Args:
      minimum_db: minimum SQNR that passes.
      scale: root mean square of the truth.
    """
    return float(MAX_ELEMENT_FACTOR * scale * 10 ** (-minimum_db / 20))


@attrs.frozen(kw_only=True)
class ErrorLimits:
    """The largest errors that pass, in the unit of the output.

    Attributes:
      rmse: root mean square of the error.
      needed: the error that right programs may need; larger than `rmse` if that would accept almost
        anything. Errors between the two cannot be judged.
      element: error of a single element, except for outliers.
      relative_element: error of a single element, relative to its expected value; the larger of the
        two limits counts.
      bias: mean of the error.
    """

    rmse: float
    needed: float
    element: float
    bias: float
    relative_element: float = 0.0


def factor_of(element_type: str, parameters: Mapping[str, float]) -> float:
    """Returns the allowed multiple of the reference's error."""
    return parameters.get("rmse_factor", RMSE_FACTORS.get(element_type, _RMSE_FACTOR))


def floor_of(element_type: str, parameters: Mapping[str, float]) -> float:
    """Returns the error that is always allowed, relative to the spread."""
    spacings = _FLOORS_IN_EPSILONS.get(element_type, _FLOOR_IN_EPSILONS)
    return parameters.get("rmse_floor", spacings * EPSILONS.get(element_type, 0.0))


def long_sum_of(element_type: str, length: int, parameters: Mapping[str, float]) -> float:
    """Returns the error that a sum of `length` numbers may have, relative to their scale."""
    if "rmse_floor" in parameters or length < 2:
        return 0.0
    epsilon = EPSILONS.get(_SUMMED_IN.get(element_type, element_type), 0.0)
    return _LONG_SUM * epsilon * math.sqrt(length)


def error_limits(
    element_type: str,
    *,
    rmse: float,
    largest: float,
    spread: float,
    size: int,
    parameters: Mapping[str, float],
    scale: float = 0.0,
    longest_sum: int = 1,
    noise: float = 0.0,
) -> ErrorLimits:
    """Returns the limits of an output.

    Args:
      element_type: the type in which the model computes, e.g. `bf16`.
      rmse: root mean square error of the reference.
      largest: the reference's largest error of an element.
      spread: standard deviation of the truth's elements; 0 if they are constant.
      size: number of elements.
      parameters: `rmse_factor` and `rmse_floor` (relative to the spread) replace the numbers above.
      scale: root mean square of the truth; counts if the elements are few or constant, or if sums
        are long.
      longest_sum: maximum number of terms that an element may sum.
      noise: root mean square by which rounding of weights and inputs moves the truth; 0 if unknown.
    """
    scattered = factor_of(element_type, parameters) * (1 + _SCATTER / math.sqrt(size))
    # The spread of few numbers may be small by chance.
    width = max(spread, scale / math.sqrt(size)) if spread else scale
    floor = width * floor_of(element_type, parameters)
    long_sum = scale * long_sum_of(element_type, longest_sum, parameters)
    needed = max(scattered * rmse, floor, long_sum, _NOISE_FACTOR * noise)
    # Equal elements have equal errors.
    bias_share = max(_BIAS_SHARE, _BIAS_SCATTER / math.sqrt(size)) if spread else 1.0
    capped = not {"rmse_factor", "rmse_floor"} & set(parameters)
    mean = math.sqrt(max(scale**2 - spread**2, 0.0))
    shared = _CUT_SHARES.get(element_type, _ELEMENT_IN_EPSILONS) * EPSILONS.get(element_type, 0.0)
    allowed = min(needed, LARGEST_SHARE_OF_SPREAD * (spread or scale)) if capped else needed
    return ErrorLimits(
        rmse=allowed,
        needed=needed,
        element=max(
            _ELEMENT_FACTOR * scattered * max(largest, _ELEMENTS_IN_RMSE * rmse),
            _ELEMENTS_IN_RMSE * max(floor, long_sum, _NOISE_FACTOR * noise),
        ),
        relative_element=_ELEMENT_IN_EPSILONS * EPSILONS.get(element_type, 0.0),
        # Errors of a sum in another order may all have the same sign. The same is true for a factor
        # that elements share, such as the sum of a softmax's row.
        bias=max(needed * bias_share, long_sum, shared * mean),
    )


@attrs.define
class _Sums:
    """Sums over groups: elements, squared errors of both runs, second and fourth power of truth."""

    count: npt.NDArray[np.float64]
    error: npt.NDArray[np.float64]
    reference: npt.NDArray[np.float64]
    square: npt.NDArray[np.float64]
    fourth: npt.NDArray[np.float64]

    @classmethod
    def of(cls, groups: int) -> "_Sums":
        return cls(*(np.zeros(groups) for _ in range(5)))

    def means(self, total: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Returns the root of the mean of a total in each group."""
        roots: npt.NDArray[np.float64] = np.sqrt(total / np.maximum(self.count, 1))
        return roots

    def are_dense(self) -> npt.NDArray[np.bool_]:
        """Returns which groups have many elements, and many of their largest magnitude."""
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            participation = self.square**2 / (self.count * self.fourth)
        dense: npt.NDArray[np.bool_] = np.nan_to_num(participation) >= _LEAST_PARTICIPATION
        return dense & (self.count >= _FEWEST)

    def add(self, labels: npt.NDArray[np.intp], terms: Sequence[Array]) -> None:
        size = len(self.count)
        self.count += np.bincount(labels, minlength=size)
        totals = (self.error, self.reference, self.square, self.fourth)
        for total, term in zip(totals, terms, strict=True):
            np.add(total, np.bincount(labels, weights=term, minlength=size), out=total)


@attrs.frozen(kw_only=True)
class Group:
    """Elements that are compared separately from the others.

    Attributes:
      name: description of the group for messages.
      axis, index: the place along an axis, without axes of one element; None for a magnitude.
      least, below: magnitudes of the truth, the second one excluded; None for a place.
      size: number of elements.
      error, limit: root mean square of their errors, and its limit.
    """

    name: str
    size: int
    error: float
    limit: float
    axis: int | None = None
    index: int | None = None
    least: float | None = None
    below: float | None = None

    @property
    def share(self) -> float:
        """The error as a share of the limit."""
        if not self.limit:
            return np.inf if self.error else 0.0
        return self.error / self.limit


def worst_share(groups: Sequence[Group]) -> float:
    """Returns the largest error of a group as a share of its limit; 0 without groups."""
    return max((group.share for group in groups), default=0.0)


def group_problem(groups: Sequence[Group]) -> str | None:
    """Returns which group exceeds its limit by the largest factor; None if none does."""
    worst = max(groups, key=lambda group: group.share, default=None)
    if worst is None or worst.share <= 1:
        return None
    return f"{worst.name} are off by {worst.error:.2g}; the limit is {worst.limit:.2g}"


def groups_of(
    output: Array,
    truth: Array,
    reference: Array,
    element_type: str,
    parameters: Mapping[str, float],
    longest_sum: int = 1,
) -> list[Group]:
    """Returns the groups of an output with their errors and limits.

    Args:
      output: output of the candidate, real. Elements that are not finite in all three are skipped.
      truth: output of the float64 run, of the same shape.
      reference: output of the run in the model's own type, of the same shape.
      element_type: the model's own type, e.g. `bf16`.
      parameters: `rmse_factor` and `rmse_floor`, see `error_limits`.
      longest_sum: maximum number of terms that an element may sum.
    """
    shape = tuple(size for size in truth.shape if size > 1)
    axes = [
        axis
        for axis, size in enumerate(shape)
        if size <= _LONGEST_AXIS and truth.size // size >= _FEWEST and len(shape) > 1
    ]
    magnitudes = _Sums.of(_EXPONENTS // _OCTAVES)
    slices = {axis: _Sums.of(shape[axis]) for axis in axes}
    smallest = SMALLEST_NORMAL.get(element_type, 2.0**-1022)
    for places, terms, expected in _chunks(output, truth, reference):
        exponents = (np.frexp(expected)[1] - _LEAST_EXPONENT) // _OCTAVES
        exponents[np.abs(expected) < smallest] = _ZEROS
        magnitudes.add(exponents.astype(np.intp), terms)
        for axis in axes:
            stride = int(np.prod(shape[axis + 1 :], dtype=np.int64))
            slices[axis].add(places // stride % shape[axis], terms)
    long_sum = long_sum_of(element_type, longest_sum, parameters)
    narrow = _GROUP_FACTORS.get(element_type)
    more = narrow or _GROUP_FACTOR
    rule = _Rule(
        factor=more * factor_of(element_type, parameters),
        floor=max((narrow or 1.0) * floor_of(element_type, parameters), more * long_sum),
        unit=min(_UNIT, float(np.sqrt(magnitudes.square.sum() / truth.size))),
    )
    groups = []
    counted, sizes = magnitudes.count >= _FEWEST, magnitudes.means(magnitudes.square)
    for index, group in rule.groups(magnitudes, _regime_scales(magnitudes), counted):
        least = 2.0 ** (index * _OCTAVES + _LEAST_EXPONENT - 1)
        below = least * 2**_OCTAVES
        name = f"{group.size} elements of magnitude {sizes[index]:.1g}"
        if index == _ZEROS:
            least, below, name = 0.0, smallest, f"{group.size} elements that should be nearly zero"
        groups.append(attrs.evolve(group, name=name, least=least, below=below))
    for axis, sums in slices.items():
        for index, group in rule.groups(sums, sums.means(sums.square), sums.are_dense()):
            name = f"elements at index {index} along the axis of size {shape[axis]}"
            groups.append(attrs.evolve(group, name=name, axis=axis, index=index))
    return groups


@attrs.frozen
class _Rule:
    """The limit of a group's error.

    Attributes:
      factor: multiple of the reference's error.
      floor: minimum limit, relative to a scale.
      unit: the scale of bounded functions, or of the whole output if that is smaller.
    """

    factor: float
    floor: float
    unit: float

    def groups(
        self, sums: _Sums, scales: npt.NDArray[np.float64], counted: npt.NDArray[np.bool_]
    ) -> Iterator[tuple[int, Group]]:
        """Yields index and group of counted groups, given the scale of each error."""
        count = np.maximum(sums.count, 1)
        scattered = self.factor * (1 + _SCATTER / np.sqrt(count))
        expected = scattered * sums.means(sums.reference)
        limits = np.maximum(expected, self.floor * np.maximum(scales, self.unit))
        errors = sums.means(sums.error)
        for index in np.flatnonzero(counted):
            size, error, limit = (float(v[index]) for v in (sums.count, errors, limits))
            yield int(index), Group(name="", size=int(size), error=error, limit=limit)


def _regime_scales(sums: _Sums) -> npt.NDArray[np.float64]:
    """Returns for each magnitude the root mean square of its regime.

    A zero may be a small number that was rounded, so zeros belong to the lowest regime. Equal
    numbers, such as masks, do not reach down to zero.
    """
    scales = np.zeros_like(sums.square)
    populated = np.flatnonzero(sums.count)
    for regime in np.split(populated, np.flatnonzero(np.diff(populated) > _GAP) + 1):
        if regime.size:
            scales[regime] = np.sqrt(sums.square[regime].sum() / sums.count[regime].sum())
    with np.errstate(invalid="ignore", over="ignore"):
        varied = sums.square**2 < _EQUAL * sums.count * sums.fourth
    varied[_ZEROS] = False
    scales[_ZEROS] = min(scales[varied], default=0.0)
    return scales


def regimes_of(truth: npt.NDArray[np.float64]) -> list[npt.NDArray[np.bool_]]:
    """Returns where each regime of an output is; zeros belong to the lowest one."""
    levels = np.frexp(truth)[1] // _OCTAVES
    known = np.unique(levels[truth != 0])
    starts = known[1:][np.diff(known) > _GAP]
    levels[truth == 0] = known[0] if known.size else 0
    regimes = np.searchsorted(starts, levels, side="right")
    return [regimes == number for number in np.unique(regimes)]


def _chunks(
    output: Array, truth: Array, reference: Array
) -> Iterator[tuple[npt.NDArray[np.intp], list[npt.NDArray[np.float64]], npt.NDArray[np.float64]]]:
    """Yields the indices, the terms of `_Sums` and the truth of the finite elements of chunks."""
    flat = [value.reshape(-1) for value in (output, truth, reference)]
    for start in range(0, truth.size, _CHUNK):
        values = np.stack([value[start : start + _CHUNK].astype(np.float64) for value in flat])
        finite = np.isfinite(values).all(axis=0)
        candidate, expected, same_type = values if finite.all() else values[:, finite]
        with np.errstate(over="ignore"):
            square = expected**2
            terms = [(candidate - expected) ** 2, (same_type - expected) ** 2, square, square**2]
        yield start + np.flatnonzero(finite), terms, expected
