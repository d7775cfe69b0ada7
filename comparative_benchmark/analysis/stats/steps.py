"""Finds real level changes in a series, and those that have not been undone.

Values are logarithms here: differences are ratios, and noise is a percentage at any level.
"""

import math
from collections.abc import Sequence
from itertools import pairwise

import attrs
import numpy as np

from comparative_benchmark.analysis.stats.piecewise import Array
from comparative_benchmark.analysis.stats.scatter import inflation
from comparative_benchmark.analysis.stats.student import student_quantile, student_tail

# Fewer nights do not show enough of the spread from night to night.
FEWEST_NIGHTS = 5
_FEWEST_BEFORE = 3
# Significance level at which a series without a change keeps a piece for the joint test.
_PRUNED_ABOVE = 0.01
_INTERVAL_LEVEL = 0.95
# As good as normal.
_LIGHT = 1e6


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
          tail: degrees of freedom of a night, see `scatter.tail`.
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
        """Returns the variance of a median of this many nights over that of one."""
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
      starts: starts of pieces, except for the first; see `piecewise.boundaries`.
      least: minimum standard deviation to assume.
      correlation: correlation of successive nights, see `scatter.correlation`.
    """
    left: list[int] = []
    for start in starts:
        if start - (left[-1] if left else 0) > 1:
            left.append(start)
    while True:
        found = _fit(values, own, left, least, correlation)
        if not left:
            return found
        p = [found.p(before, after) for before, after in pairwise(found.pieces)]
        worst = int(np.argmax(p))
        if p[worst] <= _PRUNED_ABOVE:
            return found
        del left[worst]


def rises(found: Fit, *, threshold: float, tail: float = math.inf) -> list[Step]:
    """Returns the rises that later nights have not undone, oldest first.

    Seen from the end: a level is a rise over an earlier one if no level since has been as low. A
    peak that has ended is not a rise; a rise that was partly undone counts with the remaining part.

    Args:
      found: the series.
      threshold: smaller rises, as a fraction, are left out.
      tail: see `Fit.p`.
    """
    steps: list[Step] = []
    lowest = found.pieces[-1]
    for before, after in reversed(list(pairwise(found.pieces))):
        difference = lowest.level - before.level
        if after.level > before.level and difference > math.log1p(threshold):
            width = student_quantile(0.5 + _INTERVAL_LEVEL / 2, max(found.degrees, 1.0))
            width *= found.error(before, lowest)
            steps.append(
                Step(
                    night=after.start,
                    before=math.exp(before.level),
                    ratio=math.exp(difference),
                    low=math.exp(difference - width),
                    high=math.exp(difference + width),
                    p=found.p(before, lowest, tail),
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
        told = variances[variances > 0]
        piece = Piece(
            start=start,
            stop=stop,
            lower=float(part[(stop - start - 1) // 2]),
            upper=float(part[(stop - start) // 2]),
            mean=float(part.mean()),
            own_variance=float(told.mean()) if told.size else 0.0,
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
