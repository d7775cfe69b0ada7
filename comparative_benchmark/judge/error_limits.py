"""How far from the truth an output may be: what right programs need, and coarser ones exceed.

The measure is the error that a plain, op-by-op run in the same type makes (as PyTorch's Inductor
tests do, `torch._dynamo.utils.same`). A compiler may add in another order and round less often; it
may not compute in a coarser type. The factors lie between the two, measured on the tiny models
(`benchmarks/separation.py`, docs/separation.md).
"""

import math
from collections.abc import Mapping

import attrs

# Spacing of numbers near one.
EPSILONS = {
    "f64": 2.0**-52,
    "f32": 2.0**-23,
    "f16": 2.0**-10,
    "bf16": 2.0**-7,
    "complex64": 2.0**-23,
    "complex128": 2.0**-52,
}
# How much further from the truth than the reference a candidate may be. The next coarser type is
# some 3 times as far (int8 beside bf16), 5 times (bf16 beside fp16), 80 times (TF32 beside fp32).
RMSE_FACTORS = {"f16": 2.5, "bf16": 1.9}
_RMSE_FACTOR = 6.0
# Root mean squares of few elements scatter: an estimate's relative deviation is about 1/sqrt(2 N).
_SCATTER = 2.0
# At least so many spacings near one, relative to the spread, for a reference that is right by luck.
# Rounding a result to its type costs 0.2.
_FLOORS_IN_EPSILONS = {"f16": 0.5, "bf16": 0.5}
_FLOOR_IN_EPSILONS = 2.0
# No single element may be further off than the allowed factor, and this much more, times the
# reference's worst, or this many times its root mean square if that is more: rounding is spread
# like noise, a wrong element stands out. Of right runs the worst is 4 to 11 times the root mean
# square.
_ELEMENT_FACTOR = 1.25
_ELEMENTS_IN_RMSE = 8.0
# Nor need it be nearer than so many spacings of numbers as large as itself: outputs such as
# gradients have elements far outside the spread, whose rounding alone is more than the above (seen:
# 1.5 spacings).
_ELEMENT_IN_EPSILONS = 2.5
# Errors go either way: the mean of all is at most this share of what the root mean square may be
# (of right runs 0.1), more where there are few.
_BIAS_SHARE = 0.25
_BIAS_SCATTER = 4.0


@attrs.frozen(kw_only=True)
class ErrorLimits:
    """What would just pass, in the unit of the output.

    Attributes:
      rmse: root mean square of the error.
      element: error of a single element, of those that are no outliers.
      relative_element: error of a single element, relative to what it is due to be; the larger of
        the two counts.
      bias: mean of the error.
    """

    rmse: float
    element: float
    bias: float
    relative_element: float = 0.0


def factor_of(element_type: str, parameters: Mapping[str, float]) -> float:
    """Returns how many times the reference's error is allowed."""
    return parameters.get("rmse_factor", RMSE_FACTORS.get(element_type, _RMSE_FACTOR))


def error_limits(
    element_type: str,
    *,
    rmse: float,
    largest: float,
    spread: float,
    size: int,
    parameters: Mapping[str, float],
) -> ErrorLimits:
    """Returns the limits of an output.

    Args:
      element_type: in which the model computes, e.g. `bf16`.
      rmse: root mean square error of the reference.
      largest: its largest error of an element.
      spread: standard deviation of the truth's elements.
      size: how many elements there are.
      parameters: `rmse_factor` and `rmse_floor` (relative to the spread) replace the numbers above.
    """
    scattered = factor_of(element_type, parameters) * (1 + _SCATTER / math.sqrt(size))
    spacings = _FLOORS_IN_EPSILONS.get(element_type, _FLOOR_IN_EPSILONS)
    floor = spread * parameters.get("rmse_floor", spacings * EPSILONS.get(element_type, 0.0))
    allowed = max(scattered * rmse, floor)
    return ErrorLimits(
        rmse=allowed,
        element=max(
            _ELEMENT_FACTOR * scattered * max(largest, _ELEMENTS_IN_RMSE * rmse),
            _ELEMENTS_IN_RMSE * floor,
        ),
        relative_element=_ELEMENT_IN_EPSILONS * EPSILONS.get(element_type, 0.0),
        bias=allowed * max(_BIAS_SHARE, _BIAS_SCATTER / math.sqrt(size)),
    )
