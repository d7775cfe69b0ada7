"""What samples allow to be said: intervals, ratios and verdicts.

A process is the unit of replication: iterations of one process share its memory layout and its
autotuning choices, and more of them say nothing of the next process (Kalibera & Jones, "Rigorous
benchmarking in reasonable time", ISMM 2013). Samples are in milliseconds.
"""

import enum
import math
from collections.abc import Sequence
from statistics import NormalDist

import attrs
import numpy as np

from comparative_benchmark.stats.resampling import (
    RESAMPLES,
    Processes,
    SampleError,
    Sampling,
    bootstrap,
    checked,
    student_quantile,
)

Rounds = Sequence[tuple[float, float]]

LATENCY_LEVEL = 0.95
# Of comparisons of equals 2 % may end in a verdict, so its interval is a 98 % one.
VERDICT_LEVEL = 0.98
NOISE_THRESHOLD = 0.01
MIN_PROCESSES = 3


class Verdict(enum.Enum):
    """What a comparison comes to; `UNCLEAR` unless there is evidence."""

    FASTER = "faster"
    SLOWER = "slower"
    SAME = "same"
    UNCLEAR = "unclear"
    INCOMPARABLE = "incomparable"


@attrs.frozen(kw_only=True)
class Interval:
    """An estimate with its confidence interval.

    Attributes:
      level: how often such intervals hold the true value, e.g. 0.95.
      processes: how many independent processes it rests on; with 1, the spread from process to
        process is not in it, and it is narrower than the truth.
    """

    estimate: float
    low: float
    high: float
    level: float = attrs.field(validator=[attrs.validators.gt(0.0), attrs.validators.lt(1.0)])
    processes: int = attrs.field(validator=attrs.validators.ge(1))

    @property
    def relative_half_width(self) -> float:
        """Half the interval's width over the estimate."""
        return (self.high - self.low) / 2 / self.estimate


def latency_interval(processes: Processes, *, seed: int, level: float = LATENCY_LEVEL) -> Interval:
    """Returns the mean over processes of the per-process median latency, with its interval.

    The median of a process, because interruptions only ever add time; the mean over processes,
    because a process with a slow layout is real, its users wait for it, and a median over five of
    them would hide it. The interval is a two-level bootstrap, see `bootstrap`.

    Assumes that processes are independent. Fails where they are not: processes that ran side by
    side on a throttled machine agree with each other and are all wrong. 94 to 96 % of intervals
    hold the truth from 3 processes on if process medians are about normal; fewer where processes
    have two modes and all of ours were in the same one.

    Raises:
      SampleError: no samples, a single one, or samples that are no positive finite number.
    """
    sampling = bootstrap(checked(processes), seed=seed)
    estimate, low, high = _interval(sampling, level)
    return Interval(
        estimate=estimate,
        low=max(low, 0.0),
        high=high,
        level=level,
        processes=sampling.processes,
    )


def ratio_interval(
    paired: Sequence[Rounds], *, seed: int, level: float = VERDICT_LEVEL
) -> Interval:
    """Returns candidate over baseline from interleaved measurements, with its interval.

    Args:
      paired: for each replicate (a fresh process of each side) its rounds, each the block medians
        (candidate_ms, baseline_ms) that were measured one right after the other.
      seed: of the bootstrap.
      level: of the interval.

    The estimate is exp(mean over replicates of the median over rounds of the log ratio); logs, so
    that a/b and b/a are reciprocal (Fleming & Wallace, CACM 29(3), 1986). What both sides of a
    round suffer alike (drift, clock, neighbours) cancels; what differs from process to process
    does not, and is what the interval shows.

    Fails where the order within a round matters (one side warms the cache of the other) and the
    order is not shuffled.

    Raises:
      SampleError: no rounds, a single one, or a time that is no positive finite number.
    """
    if any(len(pair) != 2 for rounds in paired for pair in rounds):
        raise SampleError("a round without both sides")
    for side in (0, 1):
        checked([[pair[side] for pair in rounds] for rounds in paired])
    logs = [np.array([math.log(a) - math.log(b) for a, b in rounds]) for rounds in paired]
    # Both directions see the same random numbers, so that swapping the sides mirrors the result.
    sign = -1.0 if sum(float(np.median(values)) for values in logs) < 0 else 1.0
    sampling = bootstrap([sign * values for values in logs], seed=seed)
    return _ratio(sampling, sign, level)


def unpaired_ratio_interval(
    candidate: Processes, baseline: Processes, *, seed: int, level: float = VERDICT_LEVEL
) -> Interval:
    """Returns candidate over baseline of samples taken at different times, with its interval.

    A two-level bootstrap of each side on logs, and degrees of freedom by Welch (Biometrika 34,
    1947). Fails, and cannot know, where the machine was different between the two measurements:
    that difference is in the ratio and not in the interval. Race both sides where it matters.

    Raises:
      SampleError: as for `latency_interval`, for either side.
    """
    logs = [[np.log(values) for values in checked(side)] for side in (candidate, baseline)]
    sides = [bootstrap(values, seed=seed) for values in logs]
    sign = -1.0 if sides[0].estimate < sides[1].estimate else 1.0
    more, less = sides if sign > 0 else reversed(sides)
    # The same seed made both: unshuffled, their errors would go together.
    order = np.random.default_rng(seed + 1).permutation(RESAMPLES)
    variances = [float(np.var(side.deviations)) for side in (more, less)]
    degrees = [side.degrees_of_freedom for side in (more, less)]
    spread = sum(v * v / d for v, d in zip(variances, degrees, strict=True))
    difference = Sampling(
        estimate=more.estimate - less.estimate,
        deviations=more.deviations - less.deviations[order],
        degrees_of_freedom=sum(variances) ** 2 / spread if spread else math.inf,
        processes=min(more.processes, less.processes),
    )
    return _ratio(difference, sign, level)


def verdict(
    interval: Interval | None,
    *,
    threshold: float = NOISE_THRESHOLD,
    processes: int | None = None,
) -> tuple[Verdict, str]:
    """Returns what a ratio candidate/baseline comes to, and why.

    `FASTER` or `SLOWER` if the whole interval lies on one side of 1 and the estimate is beyond the
    threshold; `SAME` if the whole interval lies within the threshold (two one-sided tests,
    Schuirmann 1987); else `UNCLEAR`. Of equals, about 2 % get a verdict however noisy they are,
    because the interval is a 98 % one (3 % where processes have two modes). The other rule in use,
    a 95 % interval wholly beyond the threshold, has no such bound (5 % once the noise is larger
    than the threshold) and misses more: a 3 % slow-down must then show in an interval narrower
    than 2 %, here than 3 % (`benchmarks/aa_simulation.py` prints both).

    Fails where the interval does: too few processes of a kind that has modes, or a machine that
    changed between unpaired measurements. Limits are reciprocal: swapping the sides mirrors it.

    Args:
      interval: of the ratio; None if there is none.
      threshold: differences below it are not worth a person's time.
      processes: of the side that has fewer; those of the interval unless given.
    """
    if not (math.isfinite(threshold) and threshold >= 0):
        raise ValueError(f"a threshold is a finite number from 0 on, not {threshold}")
    if interval is None:
        return Verdict.INCOMPARABLE, "no samples"
    limits = (interval.low, interval.estimate, interval.high)
    if not all(math.isfinite(value) and value > 0 for value in limits):
        return Verdict.INCOMPARABLE, "the ratio is no positive finite number"
    if not interval.low <= interval.estimate <= interval.high:
        return Verdict.INCOMPARABLE, "the ratio lies outside its own interval"
    processes = interval.processes if processes is None else processes
    if processes < MIN_PROCESSES:
        counted = f"{processes} process{'es' if processes != 1 else ''}"
        return Verdict.UNCLEAR, f"{counted}, a verdict needs at least {MIN_PROCESSES}"
    if interval.level < VERDICT_LEVEL:
        return Verdict.UNCLEAR, f"a {interval.level:.0%} interval, a verdict needs 98 %"
    beyond = max(interval.estimate, 1 / interval.estimate) > 1 + threshold
    if interval.low > 1 / (1 + threshold) and interval.high < 1 + threshold:
        return Verdict.SAME, f"the whole interval is within {threshold:.2g} of 1"
    if interval.low <= 1 <= interval.high:
        return Verdict.UNCLEAR, "the interval holds 1 and more than the threshold"
    if not beyond:
        return Verdict.UNCLEAR, f"there is a difference, but not beyond {threshold:.2g}"
    if interval.high < 1:
        return Verdict.FASTER, "the whole interval is below 1"
    return Verdict.SLOWER, "the whole interval is above 1"


def mann_whitney_p(a: Sequence[float], b: Sequence[float]) -> float | None:
    """Returns the two-sided p of the Mann-Whitney U test; None if p < 0.05 is out of reach.

    Normal approximation with corrections for ties and continuity (Mann & Whitney, Ann. Math. Stat.
    18, 1947; Lehmann, "Nonparametrics", 1975). The smallest p that n and m allow is 2/C(n+m, n):
    where that is not below 0.05 the test cannot decide, which is not the same as "no difference".
    Assumes independent samples: give it process medians, not iterations. Says nothing of how large
    a difference is.

    Raises:
      SampleError: a sample is no finite number.
    """
    both = np.array([*a, *b], dtype=np.float64)
    if not np.isfinite(both).all():
        raise SampleError("a sample is no finite number")
    n, m = len(a), len(b)
    if not n or not m or 2 / math.comb(n + m, n) >= 0.05:
        return None
    _, inverse, counts = np.unique(both, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    excess = abs(float(ranks[:n].sum()) - n * (n + m + 1) / 2) - 0.5
    ties = float(((counts.astype(np.float64)) ** 3 - counts).sum()) / ((n + m) * (n + m - 1))
    sd = math.sqrt(n * m / 12 * (n + m + 1 - ties))
    return min(1.0, 2 * NormalDist().cdf(-excess / sd)) if sd > 0 else 1.0


def _interval(sampling: Sampling, level: float) -> tuple[float, float, float]:
    """Returns estimate and limits: quantiles of the deviations, widened from normal to t."""
    tail = (1 - level) / 2
    normal = NormalDist().inv_cdf(1 - tail)
    wider = student_quantile(1 - tail, sampling.degrees_of_freedom) / normal
    low, high = (float(value) for value in np.quantile(sampling.deviations, [tail, 1 - tail]))
    estimate = sampling.estimate
    return estimate, estimate + min(wider * low, 0.0), estimate + max(wider * high, 0.0)


def _ratio(sampling: Sampling, sign: float, level: float) -> Interval:
    estimate, low, high = _interval(sampling, level)
    limits = sorted((_exp(sign * low), _exp(sign * high)))
    return Interval(
        estimate=_exp(sign * estimate),
        low=limits[0],
        high=limits[1],
        level=level,
        processes=sampling.processes,
    )


def _exp(value: float) -> float:
    # Two processes that differ can have an interval wider than a float.
    return math.exp(min(max(value, -700.0), 700.0))
