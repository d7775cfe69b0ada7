"""Piecewise-constant fits: where a series changed its level, and how much noise is around it."""

import math

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

# For a normal distribution: mean absolute deviation over standard deviation, and the standard
# deviation over the median of absolute differences of two values.
_MEAN_ABSOLUTE = math.sqrt(2 / math.pi)
_FROM_DIFFERENCES = 1 / (0.674490 * math.sqrt(2))
# So many series at once: what the fit keeps of each night then fits the cache of a core.
_TOGETHER = 32


def boundaries(values: Array, known: Mask, penalty: Array) -> list[list[int]]:
    """Returns where the best piecewise-constant fit of each series begins a new piece.

    Minimises sum |y - level| + penalty x (pieces - 1), exactly. The idea of fitting with absolute
    errors, so that one outlier is not a step, is that of asv. Levels of such a fit are values
    of the series itself: the minimum can be found like a most likely path (Viterbi) over nights
    and levels: n^2 steps, each for all series at once, where a search over segments needs the
    median of n^2 of them (Storath, Weinmann & Unser, IEEE Trans. Signal Processing 65, 2017, for
    the same trick on the circle).

    Args:
      values: [series, nights], finite wherever known.
      known: [series, nights]; unknown nights cost nothing, and never begin a piece.
      penalty: [series], what a further piece costs; above 0.

    Returns:
      For each series the positions in `values`, ascending, at which a piece begins, but for the
      first.
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
    # Unknown values are levels too, of no use: no value is near them.
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
            # Only where it is truly cheaper: of equal fits the one with fewer pieces is taken.
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

    From the median of the absolute differences of successive nights: a step is in one of them. It
    is 0 where most nights are equal to those before. Assumes that nights are independent; drift
    makes it too small, and steps that follow from that are for `steps` to refuse.

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
    """Returns what a further piece must save, by the noise of a series and its number of nights.

    Noise alone saves the more the more nights there are to split at, as the logarithm of their
    number (as in BIC, Schwarz 1978); the pieces that survive are judged anew by `steps`, so the
    factor only decides what is worth looking at. A single night makes a piece of its own at the end
    of a series of 30 if it is some 3.5 standard deviations off; within it, where that takes two
    steps, it needs twice as much.

    Args:
      scale: [series], as of `noise_scale`.
      nights: [series], how many are known.
      least: the smallest scale; a series that repeats itself exactly would make any change a step.
    """
    found: Array = _MEAN_ABSOLUTE * np.maximum(scale, least) * (1 + np.log(np.maximum(nights, 2)))
    return found
