"""Scatter of nights about a level, estimated from all trends of a metric together.

A single trend is too short to show whether its nights depend on each other, or how often one of
them is an outlier; a hundred trends of one machine are long enough.
"""

import math
from collections.abc import Sequence

import numpy as np

from comparative_benchmark.analysis.stats.piecewise import Array, Mask
from comparative_benchmark.analysis.stats.student import student_quantile

# With slower drift, the level itself drifts.
_MOST_CORRELATION = 0.9
# The default if the tails are not known: one of a thousand nights is then 4.1 standard deviations
# off, compared with 3.3 for normal ones.
_USUAL_TAIL = 10.0
_FEWEST_FOR_TAIL = 200
_HEAVIEST_TAIL, _NO_TAIL = 2.1, 1e4
# The compared quantile has this many deviations beyond it.
_BEYOND = 5


def correlation(values: Array, known: Mask) -> float:
    """Returns the correlation of successive nights, from 0 to 0.9.

    In an autoregressive series the squared differences of nights two apart are 1 + correlation
    times those of neighbours. A step affects few differences, so medians are nearly unaffected. For
    thirty nights of a single trend it is a guess, often above 0 without any correlation.

    Args:
      values: [series, nights].
      known: [series, nights].
    """
    neighbours, apart = [], []
    for series, present in zip(values, known, strict=True):
        nights = series[present]
        first = np.abs(nights[1:] - nights[:-1])
        scale = float(np.median(first)) if first.size > 1 else 0.0
        if scale > 0:
            neighbours.append(first / scale)
            apart.append(np.abs(nights[2:] - nights[:-2]) / scale)
    if not neighbours:
        return 0.0
    medians = [float(np.median(np.concatenate(some))) for some in (neighbours, apart)]
    found = (medians[1] / medians[0]) ** 2 - 1 if medians[0] else 0.0
    return min(max(found, 0.0), _MOST_CORRELATION)


def tail(residuals: Sequence[Array]) -> float:
    """Returns the degrees of freedom of the Student distribution with as heavy tails.

    In this distribution, a far quantile is the same multiple of the median as in the residuals of
    all trends, each in units of its own mean deviation. Few residuals have no far quantile; they
    are assumed to be heavier than normal, as timings are.

    Args:
      residuals: for each trend, deviations from its level.
    """
    scaled = []
    for deviations in residuals:
        absolute = np.abs(deviations)
        # Less sensitive to an outlier than a standard deviation, and steadier than a median, whose
        # own scatter from trend to trend would look like tails.
        scale = float(absolute.mean()) if absolute.size else 0.0
        if scale > 0:
            scaled.append(absolute / scale)
    pooled = np.concatenate(scaled) if scaled else np.zeros(0)
    if pooled.size < _FEWEST_FOR_TAIL:
        return _USUAL_TAIL
    share = min(1 - _BEYOND / pooled.size, 0.999)
    observed = float(np.quantile(pooled, share)) / float(np.median(pooled))
    low, high = math.log(_HEAVIEST_TAIL), math.log(_NO_TAIL)
    for _ in range(40):
        middle = (low + high) / 2
        degrees = math.exp(middle)
        expected = student_quantile((1 + share) / 2, degrees) / student_quantile(0.75, degrees)
        low, high = (middle, high) if expected > observed else (low, middle)
    return math.exp((low + high) / 2)


def missed(scales: Array, residuals: Sequence[Array]) -> float:
    """Returns the factor, at least 1, by which residuals are smaller than the scatter of nights.

    Pieces that follow a drift leave small residuals, but do not change the differences from night
    to night. A single trend's estimate of either is coarse; the median over all of them is not.

    Args:
      scales: [series], standard deviations from differences of nights; 0 if unknown.
      residuals: for each series, deviations from its pieces.
    """
    ratios = []
    for scale, deviations in zip(scales, residuals, strict=True):
        left = math.sqrt(float((deviations**2).mean()))
        if scale > 0 and left > 0:
            ratios.append(scale / left)
    return max(float(np.median(ratios)), 1.0) if ratios else 1.0


def inflation(nights: int, correlation: float) -> float:
    """Returns the variance of a mean of correlated nights over that of independent ones.

    1 + 2 sum (1 - k/n) r^k for k from 1 to n - 1 (Bartlett 1946), summed.
    """
    r = correlation
    return (1 + r) / (1 - r) - 2 * r * (1 - r**nights) / (nights * (1 - r) ** 2)
