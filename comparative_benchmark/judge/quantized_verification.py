"""Is the output of a quantised program right? Judged by its signal-to-quantisation-noise ratio.

SQNR = 10 log10(sum truth^2 / sum (output - truth)^2) in dB, where the truth is the unquantised
model in float64. Rounding weights or activations to few bits adds noise far above that of sums
taken in another order, so the ratio of errors that `verification` goes by says nothing here; how
much noise a precision makes is known from measurements (docs/design/0010-tflite.md).

What it cannot tell: an error smaller than the noise, e.g. an attention mask that is off in places.
The unquantised program through the same converter shows these.
"""

import math
from collections.abc import Mapping
from types import MappingProxyType

MIN_SQNR = "min_sqnr_db"

# By precision, in dB; see docs/design/0010-tflite.md for what was measured.
MIN_SQNR_DB: Mapping[str, float] = MappingProxyType(
    {"fp16-weights": 50.0, "dynamic-range": 20.0, "int8": 15.0}
)
# Noise spreads over an output, a wrong element stands out: none may be off by more than this many
# times the root mean square error that would just have passed.
MAX_ELEMENT_FACTOR = 8.0


def parameters_for(
    precision: str | None, data_type: str | None, given: Mapping[str, float]
) -> dict[str, float]:
    """Returns the verify parameters of a case for a program of a precision.

    Args:
      precision: what the compiler quantises to; None where it keeps the model's type.
      data_type: of the workload; a precision of its own for a case that is a quantised file.
      given: verify parameters of the case. Tolerances of an unquantised case are not for what a
        compiler makes of it by quantising: of these only `min_sqnr_db` holds.
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
    """Returns how far off a single element may be, in the output's own unit.

    Args:
      minimum_db: least SQNR that passes.
      scale: root mean square of the truth.
    """
    return float(MAX_ELEMENT_FACTOR * scale * 10 ** (-minimum_db / 20))
