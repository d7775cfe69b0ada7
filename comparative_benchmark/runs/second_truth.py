"""Whether another input changes what a model computes: else it proves nothing about a program.

A program that returns what it computed while it was loaded, or when it was first called, is right
on an input that leaves the truth as it was.
"""

import math
import operator
from collections.abc import Mapping
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from comparative_benchmark.judge.groups import groups_of
from comparative_benchmark.judge.verification import limits_of, open_array
from openxla.benchmark.artifacts.workload_store import Due
from openxla.benchmark.models.preprocessing import element_type_of

# A change must exceed what is allowed as error by this factor.
_FACTOR = 10.0
_CHUNK = 1 << 20


@attrs.frozen(kw_only=True)
class Changes:
    """Which outputs the inputs that were tried have changed.

    Attributes:
      changed: by more than errors may be, by the best input; one flag for each output.
      constant: whether all inputs gave the same bits, likewise.
      floating: whether the output holds floating-point numbers, likewise.
    """

    changed: tuple[bool, ...]
    constant: tuple[bool, ...]
    floating: tuple[bool, ...]

    @property
    def complete(self) -> bool:
        """Whether no further input need be tried."""
        return all(self.changed)

    @property
    def count(self) -> int:
        """How many outputs are changed."""
        return sum(self.changed)

    def after(self, other: "Changes | None") -> "Changes":
        """Returns these changes, with what another input has shown to depend on inputs."""
        if other is None:
            return self
        constant = tuple(map(operator.and_, self.constant, other.constant))
        return attrs.evolve(self, constant=constant)

    @property
    def remark(self) -> str | None:
        """Which outputs are verified on one input only; None if none is."""
        kept = [str(index) for index in self._unchanged]
        if not kept:
            return None
        return f"no input that was tried changes output {', '.join(kept)} beyond its rounding"

    @property
    def not_ranked(self) -> str | None:
        """Why no program of the model is ranked; None if programs may be."""
        if self.count and not any(self.floating[index] for index in self._unchanged):
            return None
        return self.remark or "no input that was tried changes any output"

    @property
    def _unchanged(self) -> list[int]:
        every = enumerate(zip(self.changed, self.constant, strict=True))
        return [index for index, (changed, constant) in every if not (changed or constant)]


def changes(first: Due, second: Due, parameters: Mapping[str, float]) -> Changes:
    """Returns which outputs a second input changes.

    Args:
      first: the first input, its truth and its reference.
      second: likewise of the second input.
      parameters: of the verification, see `judge.verification.verify`.
    """
    pairs = [
        (open_array(one), open_array(other), open_array(reference))
        for one, other, reference in zip(first.truth, second.truth, first.reference, strict=True)
    ]
    return Changes(
        changed=tuple(_differs(*pair, parameters) for pair in pairs),
        constant=tuple(one.tobytes() == other.tobytes() for one, other, _ in pairs),
        floating=tuple(_is_floating(reference) for _, _, reference in pairs),
    )


def _is_floating(values: npt.NDArray[Any]) -> bool:
    return values.dtype.kind not in "iub"


def _differs(
    one: npt.NDArray[Any],
    other: npt.NDArray[Any],
    reference: npt.NDArray[Any],
    parameters: Mapping[str, float],
) -> bool:
    """Returns whether two truths differ by more than rounding may, as root mean square."""
    if one.shape != other.shape:
        return True
    if not _is_floating(reference):
        return bool((one != other).any())
    left, right = (value.reshape(-1) for value in (one, other))
    squared = 0.0
    for start in range(0, left.size, _CHUNK):
        a, b = (_wide(value[start : start + _CHUNK]) for value in (left, right))
        finite = np.isfinite(a) & np.isfinite(b)
        # Infinities and NaN are compared exactly.
        if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
            return True
        difference = a[finite] - b[finite]
        squared += float(np.dot(difference, difference))
    if squared == 0:
        return False
    allowed = _allowed(one, reference, parameters)
    if math.sqrt(squared / left.size) > _FACTOR * allowed:
        return True
    # Numbers next to a mask of -1e9 may change although the whole hardly does.
    if reference.dtype.kind == "c":
        return False
    finite = np.isfinite(one) & np.isfinite(other) & np.isfinite(reference)
    if not finite.all():
        one, other, reference = one[finite], other[finite], reference[finite]
    groups = groups_of(other, one, reference, element_type_of(reference.dtype), parameters)
    return any(group.error > _FACTOR * group.limit for group in groups)


def _allowed(
    truth: npt.NDArray[Any], reference: npt.NDArray[Any], parameters: Mapping[str, float]
) -> float:
    """Returns the root mean square error that is allowed; 0 if nothing can be judged."""
    finite = np.isfinite(truth) & np.isfinite(reference)
    if not finite.all():
        truth, reference = truth[finite], reference[finite]
    if not truth.size:
        return 0.0
    limits = limits_of(truth, reference, parameters)
    return 0.0 if isinstance(limits, str) else limits.rmse


def _wide(values: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    if values.dtype.kind == "c":
        return values.astype(np.complex128).view(np.float64)
    return values.astype(np.float64)
