"""Limits for parts of an output, so that errors cannot hide behind larger parts.

The largest elements dominate the root mean square of a whole output. Logits next to a mask of -1e9,
or scores next to pixel coordinates, could be anything. So elements are compared in groups, of
similar magnitude and of equal position along an axis, each with the reference's error in the same
group. docs/concepts/separation.md gives the margins.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from comparative_benchmark.analysis.verification.error_limits import (
    SMALLEST_NORMAL,
    factor_of,
    floor_of,
    long_sum_of,
)

Array = npt.NDArray[Any]

# Smaller groups prove nothing: their root mean squares scatter by a fifth and more.
_FEWEST = 16
# A group's limit relative to the whole output's: there are hundreds of groups, and errors within
# one row resemble each other. In 16 bits the next coarser type is too close for more.
_GROUP_FACTORS = {"f16": 2.0, "bf16": 2.0}
_GROUP_FACTOR = 4.0
_SCATTER = 2.0
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
        """Returns which groups have many elements of their largest magnitude."""
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            participation = self.square**2 / (self.count * self.fourth)
        dense: npt.NDArray[np.bool_] = np.nan_to_num(participation) >= _LEAST_PARTICIPATION
        return dense

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
      output: output of the candidate, real and finite.
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
    for start, terms, expected in _chunks(output, truth, reference):
        used = np.abs(expected) >= SMALLEST_NORMAL.get(element_type, 0.0)
        used &= expected != 0
        exponents = (np.frexp(expected[used])[1] - _LEAST_EXPONENT) // _OCTAVES
        magnitudes.add(exponents.astype(np.intp), [term[used] for term in terms])
        flat = np.arange(start, start + expected.size)
        for axis in axes:
            stride = int(np.prod(shape[axis + 1 :], dtype=np.int64))
            slices[axis].add(flat // stride % shape[axis], terms)
    long_sum = long_sum_of(element_type, longest_sum, parameters)
    more = _GROUP_FACTORS.get(element_type, _GROUP_FACTOR)
    rule = _Rule(
        factor=more * factor_of(element_type, parameters),
        floor=more * max(floor_of(element_type, parameters), long_sum),
        unit=min(_UNIT, float(np.sqrt(magnitudes.square.sum() / truth.size))),
    )
    found = []
    counted = magnitudes.count >= _FEWEST
    for index, group in rule.groups(magnitudes, _regime_scales(magnitudes), counted):
        least = 2.0 ** (index * _OCTAVES + _LEAST_EXPONENT - 1)
        about = float(np.sqrt(magnitudes.square[index] / group.size))
        name = f"{group.size} elements of about {about:.1g}"
        found.append(attrs.evolve(group, name=name, least=least, below=least * 2**_OCTAVES))
    for axis, sums in slices.items():
        for index, group in rule.groups(sums, sums.means(sums.square), sums.are_dense()):
            name = f"elements at index {index} of the axis of size {shape[axis]}"
            found.append(attrs.evolve(group, name=name, axis=axis, index=index))
    return found


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
        self,
        sums: _Sums,
        scales: npt.NDArray[np.float64],
        counted: npt.NDArray[np.bool_],
    ) -> Iterator[tuple[int, Group]]:
        """Yields index and group of counted groups, given the scale of each error."""
        count = np.maximum(sums.count, 1)
        scattered = self.factor * (1 + _SCATTER / np.sqrt(count))
        due = scattered * sums.means(sums.reference)
        limits = np.maximum(due, self.floor * np.maximum(scales, self.unit))
        errors = sums.means(sums.error)
        for index in np.flatnonzero(counted):
            yield (
                int(index),
                Group(
                    name="",
                    size=int(sums.count[index]),
                    error=float(errors[index]),
                    limit=float(limits[index]),
                ),
            )


def _regime_scales(sums: _Sums) -> npt.NDArray[np.float64]:
    """Returns for each magnitude the root mean square of its regime."""
    scales = np.zeros_like(sums.square)
    populated = np.flatnonzero(sums.count)
    if not populated.size:
        return scales
    regimes = np.split(populated, np.flatnonzero(np.diff(populated) > _GAP) + 1)
    for regime in regimes:
        scales[regime] = np.sqrt(sums.square[regime].sum() / sums.count[regime].sum())
    return scales


def _chunks(
    output: Array, truth: Array, reference: Array
) -> Iterator[tuple[int, list[npt.NDArray[np.float64]], npt.NDArray[np.float64]]]:
    """Yields the first index, the terms of `_Sums` and the truth of each chunk."""
    flat = [value.reshape(-1) for value in (output, truth, reference)]
    for start in range(0, truth.size, _CHUNK):
        candidate, expected, same_type = (
            value[start : start + _CHUNK].astype(np.float64) for value in flat
        )
        with np.errstate(over="ignore"):
            square = expected**2
            terms = [(candidate - expected) ** 2, (same_type - expected) ** 2, square, square**2]
        yield start, terms, expected
