"""Compares results of two implementations of the same computation."""

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from openxla.benchmark.artifacts.workload_store import RouteDifference, TruthCheck
from openxla.benchmark.user_models.inputs import Array

# Float64 runs of a whole model agree to 1e-9 of the scale in all frameworks (see DESIGN.md). The
# rounding error is 1e-16; sums of a million terms, or a condition number of a million, leave 1e-10.
WIDE_TOLERANCE = 1e-9
# Tolerance for a single ONNX operator. Some float64 kernels hold constants in float32, such as the
# scale of `Attention` (observed: 6e-8). Smaller differences cannot change a verdict, because the
# tolerance for float32 outputs is at least two spacings. A forgotten epsilon of 1e-5 gives 5e-6.
NODE_TOLERANCE = 2.0**-23
# Tolerance for an operator evaluated in float32 on float32 operands: 1000 spacings. Semantic faults
# (an axis, a coordinate, a length) give errors of order one.
_FLOAT32_TOLERANCE = 1000 * 2.0**-23
# 16-bit results may differ by this number of spacings.
_SPACINGS = 4
EVALUATOR, RUNTIME, UPGRADED = "ONNX's evaluator", "ONNX Runtime", "a newer version of the operator"


def difference(
    first: Sequence[Any], second: Sequence[Any], *, tolerance: float = WIDE_TOLERANCE
) -> float | None:
    """Returns the relative difference of results if it exceeds rounding, else None.

    The difference is relative to the scale. It is infinite if shapes or kinds differ, if NaN or
    infinity occur in different places, or if integers are not equal.

    Args:
      first: arrays in order.
      second: the same arrays from another implementation.
      tolerance: tolerance in float64; results in a narrower type use the tolerance of that type.
    """
    if len(first) != len(second):
        return np.inf
    arrays = [tuple(map(np.asarray, pair)) for pair in zip(first, second, strict=True)]
    return max((_error(one, other, tolerance) for one, other in arrays), default=0.0) or None


def is_float(value: Any) -> bool:
    """Returns whether a value is an array of real floating-point numbers."""
    dtype = getattr(value, "dtype", None)
    return dtype is not None and (dtype.kind == "f" or dtype.name == "bfloat16")


def checked(
    truth: Sequence[Array], second: Sequence[Array] | None, *, routes: tuple[str, str], where: str
) -> TruthCheck:
    """Compares a float64 truth with the result of a second route, for a program as a whole.

    Args:
      truth: outputs in float64.
      second: outputs of the second route; None if it is not available.
      routes: names of the two routes.
      where: what is evaluated, e.g. `the program`.
    """
    if second is None:
        return TruthCheck(routes=routes[:1], unchecked=(where,))
    for index, (one, other) in enumerate(zip(truth, second, strict=True)):
        if (error := difference([one], [other])) is not None:
            node = f"output {index}"
            found = RouteDifference(operator=where, node=node, routes=routes, error=finite(error))
            return TruthCheck(routes=routes, in_doubt=(found,))
    return TruthCheck(routes=routes)


def finite(error: float) -> float | None:
    """Returns an error as stored in a result: None if it is infinite."""
    return error if np.isfinite(error) else None


def _error(one: Array, other: Array, tolerance: float) -> float:
    if one.shape != other.shape:
        return np.inf
    kinds = {"f" if is_float(value) else value.dtype.kind for value in (one, other)}
    if kinds == {"c"}:
        one, other = (np.stack([value.real, value.imag]) for value in (one, other))
    elif kinds != {"f"}:
        is_same = (len(kinds) == 1 or kinds <= {"i", "u"}) and np.array_equal(one, other)
        return 0.0 if is_same else np.inf
    allowed = max(tolerance, *(_rounding_of(value) for value in (one, other)))
    a, b = one.astype(np.float64), other.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        off = np.abs(a - b)
    if not np.isfinite(off).all():
        inside = np.isfinite(a)
        ends_agree = np.array_equal(a[~inside], b[~inside], equal_nan=True)
        if not ends_agree or not np.array_equal(inside, np.isfinite(b)):
            return np.inf
        a, off = a[inside], off[inside]
    scale, worst = float(np.abs(a).max(initial=0.0)), float(off.max(initial=0.0))
    if worst <= allowed * scale:
        return 0.0
    return worst / scale if scale else np.inf


def _rounding_of(value: Array) -> float:
    """Returns the rounding error allowed for an operator in this type; 0 for float64."""
    if value.dtype in (np.float64, np.complex128):
        return 0.0
    return max(_FLOAT32_TOLERANCE, _SPACINGS * float(ml_dtypes.finfo(value.dtype).eps))
