"""Piecewise-constant fits: the level changes of a series, and the noise around the levels."""

import math

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

# For a normal distribution: mean absolute deviation over standard deviation, and the standard
# deviation over the median of absolute differences of two values.
_MEAN_ABSOLUTE = math.sqrt(2 / math.pi)
_FROM_DIFFERENCES = 1 / (0.674490 * math.sqrt(2))
# Number of series per batch: the fit's data of each night then fits the cache of a core.
_TOGETHER = 32


def boundaries(values: Array, known: Mask, penalty: Array) -> list[list[int]]:
    """Returns the starts of pieces in the best piecewise-constant fit of each series.

    Minimises sum |y - level| + penalty x (pieces - 1), exactly. Absolute errors, so that one
    outlier is not a step, are asv's idea. Levels of such a fit are values of the series itself, so
    the minimum can be found like a most likely path (Viterbi) over nights and levels: n^2 steps,
    each for all series at once, while a search over segments needs the median of n^2 of them
    (Storath, Weinmann & Unser, IEEE Trans. Signal Processing 65, 2017, use the same trick on the
    circle).

    Args:
      values: [series, nights], finite wherever known.
      known: [series, nights]; unknown nights cost nothing, and never begin a piece.
      penalty: [series], cost of another piece; above 0.

    Returns:
      For each series the positions in `values`, ascending, at which a piece begins, except for the
      first piece.
    """
    found: list[list[int]] = []
    for start in range(0, len(values), _TOGETHER):
        some = slice(start, start + _TOGETHER)
        found += _boundaries(values[some], known[some], penalty[some])
    return found


def _boundaries(values: Array, known: Mask, penalty: Array) -> list[list[int]]:
    count, nights = values.shape
    if not count or not nights:
        return [[] for _ in range(count)]
    # Unknown values are levels too, but never used: no value is near them.
    levels = np.where(known, values, np.inf)
    levels = np.sort(levels, axis=1)
    levels = np.where(
        np.isinf(levels), np.where(np.isinf(levels[:, :1]), 0.0, levels[:, :1]), levels
    )
    rows = np.arange(count)
    cost = np.zeros((count, nights))
    begins = np.zeros((nights, count, nights), dtype=np.bool_)
    origins = np.zeros((nights, count), dtype=np.intp)
    for night in range(nights):
        if night:
            origin = cost.argmin(axis=1)
            anew = (cost[rows, origin] + penalty)[:, None]
            # Only if strictly cheaper: of equal fits, choose the one with fewer pieces.
            begins[night] = (anew < cost) & known[:, night, None]
            cost = np.where(begins[night], anew, cost)
            origins[night] = origin
        distance = np.abs(np.where(known[:, night], values[:, night], 0.0)[:, None] - levels)
        cost = cost + np.where(known[:, night, None], distance, 0.0)
    level = cost.argmin(axis=1)
    starts: list[list[int]] = [[] for _ in range(count)]
    for night in range(nights - 1, 0, -1):
        turned = begins[night, rows, level]
        for row in np.flatnonzero(turned):
            starts[row].append(night)
        level = np.where(turned, origins[night], level)
    return [_within(found[::-1], known[row]) for row, found in enumerate(starts)]


def _within(starts: list[int], known: Mask) -> list[int]:
    """Leaves out starts before which nothing is known."""
    first = int(np.argmax(known)) if known.any() else len(known)
    return [start for start in starts if start > first]


def noise_scale(values: Array, known: Mask) -> Array:
    """Returns the standard deviation of each series about its level, whatever its steps.

    It uses the median of the absolute differences of successive nights: a step affects only one of
    them. It is 0 if most nights are equal to those before. Assumes that nights are independent;
    drift makes it too small, and `steps` must reject the resulting steps.

    Args:
      values: [series, nights].
      known: [series, nights].
    """
    scales = np.zeros(len(values))
    for row, (series, present) in enumerate(zip(values, known, strict=True)):
        differences = np.abs(np.diff(series[present]))
        if differences.size:
            scales[row] = _FROM_DIFFERENCES * float(np.median(differences))
    return scales


def penalties(scale: Array, nights: Array, least: float) -> Array:
    """Returns the cost of another piece, by the noise of a series and its number of nights.

    Noise alone saves more with more nights to split at, as the logarithm of their number (as in
    BIC, Schwarz 1978). `steps` tests the remaining pieces again, so the factor only selects
    candidates. A single night forms a piece at the end of a series of 30 if it is some 3.5 standard
    deviations off; in the middle, where that requires two steps, it needs twice as much.

    Args:
      scale: [series], from `noise_scale`.
      nights: [series], number of known nights.
      least: minimum scale; without it, any change in an exactly constant series would be a step.
    """
    found: Array = _MEAN_ABSOLUTE * np.maximum(scale, least) * (1 + np.log(np.maximum(nights, 2)))
    return found
