"""Finds real level changes in a series of nights, and those that have not been undone.

Values are logarithms here: differences are ratios, and noise is a percentage at any level.

The scatter of nights about a level is estimated from all trends of a metric together: a single
trend is too short to show whether its nights depend on each other, or how often one of them is an
outlier; a hundred trends of one machine are long enough.
"""

import math
from collections.abc import Sequence
from itertools import pairwise

import attrs
import numpy as np
from numpy.typing import NDArray

from comparative_benchmark.analysis.stats.analysis import student_quantile, student_tail

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

# For a normal distribution: mean absolute deviation over standard deviation, and the standard
# deviation over the median of absolute differences of two values.
_MEAN_ABSOLUTE = math.sqrt(2 / math.pi)
_FROM_DIFFERENCES = 1 / (0.674490 * math.sqrt(2))
# Number of series per batch: the fit's data of each night then fits the cache of a core.
_TOGETHER = 32

# With slower drift, the level itself drifts.
_MOST_CORRELATION = 0.9
# The default if the tails are not known: one of a thousand nights is then 4.1 standard deviations
# off, compared with 3.3 for normal ones.
_USUAL_TAIL = 10.0
_FEWEST_FOR_TAIL = 200
_HEAVIEST_TAIL, _NO_TAIL = 2.1, 1e4
# The compared quantile has this many deviations beyond it.
_BEYOND = 5

# Fewer nights do not show enough of the spread from night to night.
FEWEST_NIGHTS = 5
_FEWEST_BEFORE = 3
# Significance level at which a series without a change keeps a piece for the joint test.
_PRUNED_ABOVE = 0.01
_INTERVAL_LEVEL = 0.95
# As good as normal.
_LIGHT = 1e6


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
    rows: list[list[int]] = []
    for start in range(0, len(values), _TOGETHER):
        some = slice(start, start + _TOGETHER)
        rows += _boundaries(values[some], known[some], penalty[some])
    return rows


def _boundaries(values: Array, known: Mask, penalty: Array) -> list[list[int]]:
    count, nights = values.shape
    if not count or not nights:
        return [[] for _ in range(count)]
    # Unknown values are levels too, but never used: no value is near them.
    levels = np.sort(np.where(known, values, np.inf), axis=1)
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
    return [_known_starts(segments[::-1], known[row]) for row, segments in enumerate(starts)]


def _known_starts(starts: list[int], known: Mask) -> list[int]:
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
    penalty: Array = _MEAN_ABSOLUTE * np.maximum(scale, least) * (1 + np.log(np.maximum(nights, 2)))
    return penalty


def correlation(values: Array, known: Mask) -> float:
    """Returns the correlation of successive nights, from 0 to 0.9.

    In an autoregressive series the squared differences of nights two apart are 1 + correlation
    times the squared differences of neighbours. A step affects few differences, so medians are
    nearly unaffected. For thirty nights of a single trend it is a guess, often above 0 without any
    correlation.

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
    estimate = (medians[1] / medians[0]) ** 2 - 1 if medians[0] else 0.0
    return min(max(estimate, 0.0), _MOST_CORRELATION)


def tail(residuals: Sequence[Array]) -> float:
    """Returns the degrees of freedom of the Student distribution with as heavy tails.

    In this distribution, a far quantile is the same multiple of the median as in the residuals of
    all trends, each in units of its trend's mean deviation. Few residuals have no far quantile;
    they are assumed to be heavier than normal, as timings are.

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
    # The median is zero if most nights of a deterministic metric are equal.
    usual = float(np.median(pooled))
    observed = float(np.quantile(pooled, share)) / usual if usual else math.inf
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
    """Returns the factor by which correlation increases the variance of a mean of nights.

    1 + 2 sum (1 - k/n) r^k for k from 1 to n - 1 (Bartlett 1946), summed.
    """
    r = correlation
    return (1 + r) / (1 - r) - 2 * r * (1 - r**nights) / (nights * (1 - r) ** 2)


@attrs.frozen(kw_only=True)
class Piece:
    """Nights `start` to `stop` (exclusive) of one level.

    Attributes:
      lower, upper: the two middle ones of its logarithms; equal if their number is odd.
      mean: mean of its logarithms.
      own_variance: variance of a night's own estimate, from its interval; mean over the nights that
        have one.
    """

    start: int
    stop: int
    lower: float
    upper: float
    mean: float
    own_variance: float

    @property
    def level(self) -> float:
        """The median of the logarithms, which a single outlier does not move."""
        return (self.lower + self.upper) / 2

    @property
    def nights(self) -> int:
        """The number of nights."""
        return self.stop - self.start


@attrs.frozen(kw_only=True)
class Step:
    """A rise that has not been undone.

    Attributes:
      night: position of the first night on the higher level.
      before: the level before it.
      ratio, low, high: the lowest level since, over the level before, with its 95 % interval.
      p: how often noise alone makes such a rise in a series of this length, about; at most 1.
    """

    night: int
    before: float
    ratio: float
    low: float
    high: float
    p: float


@attrs.frozen(kw_only=True)
class Fit:
    """A series as pieces, with the variance from night to night.

    Attributes:
      degrees: degrees of freedom of the variance, for this many independent nights.
      correlation: correlation of successive nights.
      residuals: [nights], deviations from the levels.
    """

    pieces: tuple[Piece, ...]
    variance: float
    degrees: float
    correlation: float
    residuals: Array

    @property
    def nights(self) -> int:
        """The number of nights."""
        return len(self.residuals)

    def p(self, before: Piece, after: Piece, tail: float = math.inf) -> float:
        """Returns the two-sided p of two levels being equal, corrected for the choice of the night.

        A step at the last night, which a person checks every morning, gets half of the error, one
        at the night before a sixth, and so on: 1 / (k (k + 1)), which sums to 1 (a Bonferroni
        correction with weights). Older steps have more nights as evidence. A piece of several
        nights is tested by its middle one and by its mean; the smaller p counts, doubled.

        Args:
          before: a piece.
          after: a later one.
          tail: degrees of freedom of a night, see `tail`.
        """
        if self.degrees < 1:
            return 1.0
        alone = self._by_middle(before, after, tail)
        if after.nights > 1:
            alone = 2 * min(alone, self._by_mean(before, after, tail))
        ago = self.nights - after.start
        return min(1.0, alone * ago * (ago + 1))

    def _by_middle(self, before: Piece, after: Piece, tail: float) -> float:
        """Returns p of a piece's middle night, of two the nearer one, being this far off.

        A single night with heavy tails may be far off by chance. If the middle one is, then more
        than half of them are as far off or farther: a power of the chance of one.
        """
        if after.level > before.level:
            distance = after.lower - before.level
        else:
            distance = before.level - after.upper
        distance = max(distance, 0.0) / self.error(before, after)
        p = 2 * student_tail(distance, self.degrees)
        tail *= after.nights // 2 + 1
        return max(p, 2 * _heavy_tail(distance, tail)) if tail < self.degrees else p

    def _by_mean(self, before: Piece, after: Piece, tail: float) -> float:
        """Returns p of a piece's mean being this far off: by all of its nights, or by one alone.

        More powerful than the middle night if tails are light. If they are heavy, a mean is most
        often off because a single night is off by as much as all together.
        """
        distance = abs(after.mean - before.level)
        variance = max(self.variance, after.own_variance)
        share = inflation(after.nights, self.correlation) / after.nights
        error = math.sqrt(self.variance * self._share(before.nights) + variance * share)
        p = 2 * student_tail(distance / error, self.degrees)
        if tail == math.inf:
            return p
        jump = after.nights * distance / math.sqrt(variance)
        return p + 2 * after.nights * _heavy_tail(jump, tail)

    def scaled(self, factor: float) -> "Fit":
        """Returns the fit with the standard deviation scaled by a factor."""
        return attrs.evolve(self, variance=self.variance * factor**2)

    def error(self, before: Piece, after: Piece) -> float:
        """Returns the standard error of the difference of two levels.

        The variance from night to night includes the variance within a night. A night that was
        measured worse than the others has a larger variance from its own interval, which then
        counts.
        """
        after_variance = max(self.variance, after.own_variance)
        return math.sqrt(
            self.variance * self._share(before.nights) + after_variance * self._share(after.nights)
        )

    def _share(self, nights: int) -> float:
        """Returns the variance of a median of this many nights as a share of one night's."""
        median_over_mean = math.pi / 2 if nights > 2 else 1.0
        return median_over_mean * inflation(nights, self.correlation) / nights


def fit(
    values: Array, own: Array, starts: Sequence[int], *, least: float, correlation: float = 0.0
) -> Fit:
    """Returns the pieces that remain after merging those that noise explains, worst first.

    A piece of a single night does not count, unless it is the last: short peaks are noise. Assumes
    that nights scatter alike about all levels, and depend on each other only by their correlation.

    Args:
      values: [nights], logarithms.
      own: [nights], variance of each value from its own interval; 0 without one.
      starts: starts of pieces, except for the first; see `boundaries`.
      least: minimum standard deviation to assume.
      correlation: correlation of successive nights, see `correlation`.
    """
    left: list[int] = []
    for start in starts:
        if start - (left[-1] if left else 0) > 1:
            left.append(start)
    while True:
        fitted = _fit(values, own, left, least, correlation)
        if not left:
            return fitted
        p = [fitted.p(before, after) for before, after in pairwise(fitted.pieces)]
        worst = int(np.argmax(p))
        if p[worst] <= _PRUNED_ABOVE:
            return fitted
        del left[worst]


def rises(series: Fit, *, threshold: float, tail: float = math.inf) -> list[Step]:
    """Returns the rises that later nights have not undone, oldest first.

    Seen from the end: a level is a rise over an earlier one if no level since has been as low. A
    peak that has ended is not a rise; a rise that was partly undone counts with the remaining part.

    Args:
      series: the series.
      threshold: smaller rises, as a fraction, are left out.
      tail: see `Fit.p`.
    """
    steps: list[Step] = []
    lowest = series.pieces[-1]
    for before, after in reversed(list(pairwise(series.pieces))):
        difference = lowest.level - before.level
        if after.level > before.level and difference > math.log1p(threshold):
            width = student_quantile(0.5 + _INTERVAL_LEVEL / 2, max(series.degrees, 1.0))
            width *= series.error(before, lowest)
            steps.append(
                Step(
                    night=after.start,
                    before=math.exp(before.level),
                    ratio=math.exp(difference),
                    low=math.exp(difference - width),
                    high=math.exp(difference + width),
                    p=series.p(before, lowest, tail),
                )
            )
        lowest = min(lowest, before, key=lambda piece: piece.level)
    return [step for step in reversed(steps) if step.night >= _FEWEST_BEFORE]


def discoveries(p: Sequence[float], tests: int, rate: float) -> float:
    """Returns the largest p that counts when this many series are tested together.

    Benjamini & Hochberg (J. R. Stat. Soc. B 57, 1995): on average at most `rate` of the reported
    ones are false; if nothing changed at all, `rate` is the chance of any report. 0 if nothing
    counts.
    """
    limit = 0.0
    for rank, value in enumerate(sorted(p), start=1):
        if value <= rate * rank / max(tests, 1):
            limit = value
    return limit


def _heavy_tail(distance: float, degrees: float) -> float:
    """Returns P(T > distance) of a Student distribution that was scaled to a variance of 1."""
    if degrees > _LIGHT:
        return student_tail(distance, degrees)
    return student_tail(distance * math.sqrt(degrees / (degrees - 2)), degrees)


def _fit(values: Array, own: Array, starts: Sequence[int], least: float, correlation: float) -> Fit:
    nights = len(values)
    pieces = []
    residuals = np.zeros(nights)
    for start, stop in pairwise([0, *starts, nights]):
        part, variances = np.sort(values[start:stop]), own[start:stop]
        known_variances = variances[variances > 0]
        piece = Piece(
            start=start,
            stop=stop,
            lower=float(part[(stop - start - 1) // 2]),
            upper=float(part[(stop - start) // 2]),
            mean=float(part.mean()),
            own_variance=float(known_variances.mean()) if known_variances.size else 0.0,
        )
        residuals[start:stop] = values[start:stop] - piece.level
        pieces.append(piece)
    spare = nights - len(pieces)
    squares = float((residuals**2).sum())
    # Correlated nights determine the variance like fewer independent ones (Bartlett 1946).
    degrees = spare * (1 - correlation**2) / (1 + correlation**2)
    return Fit(
        pieces=tuple(pieces),
        variance=max(squares / spare, least**2) if spare else math.inf,
        degrees=degrees,
        correlation=correlation,
        residuals=residuals,
    )
