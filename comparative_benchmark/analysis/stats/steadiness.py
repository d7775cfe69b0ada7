"""Tests for steady speed: at the end of the warm-up, over rounds, and over processes.

The warm-up is tested before anything counts; a falling clock, a cache that fills or memory that
runs out has an effect later. So later rounds of each process are compared with the earlier ones,
over all processes: a change in a single process is part of the spread between them. Processes that
resemble their neighbours would make intervals too narrow.
"""

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache

import attrs
import numpy as np
from numpy.typing import NDArray

from comparative_benchmark.analysis.stats.analysis import Array, latency_interval

# Block medians in logarithms, by round.
Rounds = Mapping[int, float]

_FEWEST_ROUNDS = 8
# Shares of the rounds after which to test for a change; only a few, as each is one more test.
_SPLITS = (0.5, 0.125, 0.25, 0.75, 0.875)
_FEWEST_OF_PART = 3
# Simulated with the stopping rule of races (`benchmarks/steady_rounds.py`): of 3,000 steady ones in
# each kind of noise none is reported as unsteady; steps by 5 % in noise of 1 % are found in at
# least 99.8 %.
_ROUNDS_STANDARD_ERRORS = 4.0
# Smaller changes do not count, however significant they are.
_LEAST_CHANGE = 0.02

# Among fewer values in a row, no order is unlikely enough.
FEWEST_PROCESSES = 8
_ERROR = 0.01
_PERMUTATIONS = 20_000

FEWEST_SAMPLES = 8
# pyperf's limits for means and quartiles.
_SLOWER_FIRST_MEAN, _FASTER_FIRST_MEAN, _QUARTILES, _MAD_FACTOR = 0.10, 0.50, 0.05, 2.0
# Smaller differences, in standard errors, count as chance.
_STANDARD_ERRORS = 3.0
_SD_PER_MAD = 1.4826
# Standard error of a quartile, normal samples, in sd / sqrt(n).
_QUARTILE_ERROR = 1.36
# The same for a median.
_MEDIAN_ERROR = 1.25
# Standard error of the logarithm of a MAD, times sqrt(n).
_MAD_ERROR = 1.17


@attrs.frozen(kw_only=True)
class Change:
    """The difference between later and earlier rounds.

    Attributes:
      split: share of the rounds that are the earlier ones.
      log_ratio: mean over processes of later minus earlier, in logarithms of the latency.
      standard_errors: the same in units of its standard error.
      agreed: whether it has the same sign in each process.
    """

    split: float
    log_ratio: float
    standard_errors: float
    agreed: bool

    @property
    def is_real(self) -> bool:
        """Whether the program was unsteady."""
        return (
            self.agreed
            and abs(self.log_ratio) > _LEAST_CHANGE
            and abs(self.standard_errors) > _ROUNDS_STANDARD_ERRORS
        )


def change(processes: Sequence[Sequence[float]], split: float = 0.5) -> Change | None:
    """Returns how the later rounds differ from the earlier ones; None for too few rounds.

    The split-half test of `steadiness`, over several processes at once. The error is the error of
    means of rounds around the mean of their part, pooled over processes. Rounds of one process
    resemble their predecessors, which makes means of them less certain: by (1 + r) / (1 - r) for
    noise of first order and correlation r (Priestley, Spectral Analysis and Time Series, 1981,
    5.3.2). r is the correlation of neighbouring rounds, corrected because each part is centred on
    its own mean.

    Args:
      processes: the logarithm of each block's median, in the order of the rounds.
      split: share of the rounds that are the earlier ones; each part has at least three.
    """
    long_enough = [np.asarray(p, dtype=np.float64) for p in processes if len(p) >= _FEWEST_ROUNDS]
    if not long_enough:
        return None
    changes, squares, products, degrees, variance = [], 0.0, 0.0, 0, 0.0
    earlier = 0
    shortest = min(len(values) // 2 for values in long_enough)
    for values in long_enough:
        later = len(values) - _FEWEST_OF_PART
        cut = min(max(round(split * len(values)), _FEWEST_OF_PART), later)
        parts = values[:cut], values[cut:]
        earlier += cut
        changes.append(float(parts[1].mean() - parts[0].mean()))
        for rest in (part - part.mean() for part in parts):
            squares += float(rest @ rest)
            products += float(rest[1:] @ rest[:-1])
        degrees += len(values) - 2
        variance += sum(1 / len(part) for part in parts)
    mean = math.fsum(changes) / len(changes)
    correlation = (products / squares if squares else 0.0) + 1 / shortest
    correlation = min(max(correlation * shortest / (shortest - 1), 0.0), 0.9)
    inflation = (1 + correlation) / (1 - correlation)
    error = math.sqrt(squares / degrees * inflation * variance) / len(changes)
    return Change(
        split=earlier / sum(map(len, long_enough)),
        log_ratio=mean,
        standard_errors=mean / error if error else math.copysign(math.inf, mean),
        agreed=all(value * mean > 0 for value in changes),
    )


def why_not_steady(
    processes: Sequence[Rounds], rivals: Sequence[Sequence[Rounds]] = ()
) -> str | None:
    """Returns why a program did not keep its speed; None if it did or if that is unknown.

    If rivals were measured in alternation, it must have changed relative to them, too, in the same
    direction: common changes are the machine's.

    Args:
      processes: blocks of the program by round.
      rivals: for each process, the blocks of rivals that were measured alternately.
    """
    alone = [[rounds[index] for index in sorted(rounds)] for rounds in processes]
    beside = [_relative(*pair) for pair in zip(processes, rivals, strict=True)] if rivals else []
    changes = [_real_change(alone, beside, split) for split in _SPLITS]
    own, relative = max(
        filter(None, changes), key=lambda pair: abs(pair[0].standard_errors), default=(None, None)
    )
    if own is None:
        return None
    last, off = f"the last {1 - own.split:.0%} of the rounds", math.expm1(own.log_ratio)
    said = f"{last} differ by {off:+.1%} from the earlier ones"
    if relative is None:
        return said
    return f"{said}, and by {math.expm1(relative.log_ratio):+.1%} relative to the other competitors"


def _real_change(
    alone: Sequence[Sequence[float]], beside: Sequence[Sequence[float]], split: float
) -> tuple[Change, Change | None] | None:
    """Returns a real change at a split, by itself and against rivals; None without one."""
    own = change(alone, split)
    if own is None or not own.is_real:
        return None
    if not any(beside):
        return own, None
    relative = change(beside, split)
    if relative is None or not relative.is_real or relative.log_ratio * own.log_ratio < 0:
        return None
    return own, relative


def _relative(own: Rounds, rivals: Sequence[Rounds]) -> list[float]:
    """Returns each round minus the median of the rivals, each around its own mean."""
    centred = [
        {index: value - math.fsum(rounds.values()) / len(rounds) for index, value in rounds.items()}
        for rounds in rivals
        if rounds
    ]
    differences = []
    for index in sorted(own):
        beside = [rounds[index] for rounds in centred if index in rounds]
        if beside:
            differences.append(own[index] - float(np.median(beside)))
    return differences


def resembles(values: Sequence[float]) -> bool:
    """Returns whether successive values resemble each other more than chance allows.

    Bartels' rank version of von Neumann's ratio (J. Am. Stat. Assoc. 77, 1982) at 1 %, one-sided.
    With ten values of an AR(1) series it detects a coefficient of 0.5 in 10 % of cases and one of
    0.8 in 29 %: weaker dependence cannot be seen in a race. False for fewer than eight values.
    """
    if len(values) < FEWEST_PROCESSES:
        return False
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts + 1) / 2)[places]  # equal values share the mean rank
    return bool(len(counts) > 1 and _ratio(ranks) <= _critical(len(values)))


def _ratio(ranks: Array) -> Array:
    """Returns the sum of squared steps over the sum of squares, along the last axis."""
    steps = np.diff(ranks, axis=-1)
    centred = ranks - (ranks.shape[-1] - 1) / 2
    ratio: Array = (steps**2).sum(axis=-1) / (centred**2).sum(axis=-1)
    return ratio


@lru_cache
def _critical(count: int) -> float:
    """Returns the ratio below which random orders fall in 1 % of cases."""
    orders = np.random.default_rng(count).random((_PERMUTATIONS, count)).argsort(axis=-1)
    return float(np.quantile(_ratio(orders.astype(np.float64)), _ERROR))


@attrs.frozen(kw_only=True)
class Half:
    """Location and spread of one half of the samples."""

    samples: int
    mean_ms: float
    lower_quartile_ms: float
    upper_quartile_ms: float
    mad_ms: float
    stddev_ms: float


@attrs.frozen(kw_only=True)
class Steadiness:
    """Whether samples were steady, with the reason and the evidence."""

    steady: bool
    reason: str
    first_half: Half | None
    second_half: Half | None


def steadiness(samples_ms: Sequence[float]) -> Steadiness:
    """Returns whether the second half of the samples looks like the first.

    The split-half test of pyperf (`pyperf/_worker.py`, `test_calibrate_warmups`): the first sample
    is not an upper outlier of the rest (Q3 + 1.5 IQR), the first mean is from 50 % below to 10 %
    above the second, quartiles differ by at most 5 %, and the spread (MAD) is similar. pyperf
    requires MADs within 10 %, which 20 noisy samples rarely satisfy: here the limit is a factor of
    2. And a difference counts only beyond 3 standard errors, so that noise alone does not look like
    a warm-up.

    Assumes that warm-up effects occur within the samples. It cannot see a change slower than the
    duration of the samples (a clock that falls over minutes), a step after they end, an oscillation
    that both halves share, nor a process that settled in a slow state. In noisy samples it sees
    only large trends. Fewer than 8 samples, or samples that are not positive finite numbers, are
    not steady.
    """
    values = np.asarray(samples_ms, dtype=np.float64)
    if values.size < FEWEST_SAMPLES:
        return _unsteady(f"{values.size} samples; the test needs at least {FEWEST_SAMPLES}")
    if not (np.isfinite(values).all() and (values > 0).all()):
        return _unsteady("a sample is not a positive finite number")
    first, second = _half(values[: values.size // 2]), _half(values[values.size // 2 :])
    low, high = np.quantile(values[1:], [0.25, 0.75])
    fence = float(high + 1.5 * (high - low))
    reasons = _differences(first, second)
    if values[0] > max(fence, float(high) * (1 + _QUARTILES)):
        reasons.insert(0, f"the first sample, {values[0]:.4g} ms, is an outlier")
    return Steadiness(
        steady=not reasons,
        reason="; ".join(reasons) or "the halves do not differ",
        first_half=first,
        second_half=second,
    )


def later_change(samples_ms: Sequence[float]) -> tuple[float, float] | None:
    """Returns the medians of the first and the second half in ms, if they clearly differ.

    They differ by more than 10 %, and by more than 3 standard errors of the two medians. None if
    they do not, if there are fewer than 8 samples, or if a sample is not a positive finite number.
    For runs with fixed counts: the median of such samples describes neither half.
    """
    values = np.asarray(samples_ms, dtype=np.float64)
    if values.size < FEWEST_SAMPLES or not (np.isfinite(values).all() and (values > 0).all()):
        return None
    halves = (values[: values.size // 2], values[values.size // 2 :])
    first, second = (float(np.median(half)) for half in halves)
    mads = [float(np.median(np.abs(half - np.median(half)))) for half in halves]
    error = _MEDIAN_ERROR * _SD_PER_MAD * math.hypot(*mads) / math.sqrt(halves[0].size)
    limit = max(_SLOWER_FIRST_MEAN * min(first, second), _STANDARD_ERRORS * error)
    return (first, second) if abs(first - second) > limit else None


def relative_precision(samples_ms: Sequence[float]) -> float:
    """Returns the half-width of the 95 % interval of this process, as a share of its median.

    See `latency_interval`: cheap enough to be computed after each block. The next process may
    differ by more. Infinite for fewer than 8 samples.

    Stopping at a goal sometimes means stopping at a lucky moment, so the interval at the stop
    covers the truth a few percent less often than its level (Anscombe, 1952). The verdict is based
    on the spread between processes, which this does not affect.

    Raises:
      SampleError: fewer than two samples, or one that is not a positive finite number.
    """
    interval = latency_interval([samples_ms])
    return interval.relative_half_width if len(samples_ms) >= FEWEST_SAMPLES else math.inf


def noise_converged(history: Sequence[float], *, window: int = 16, tolerance: float = 0.05) -> bool:
    """Returns whether the last blocks no longer made the interval narrower.

    True if the mean of the last `window` relative half-widths falls by at most `tolerance` from
    their earlier to their later half. The idea is nvbench's `stdrel` criterion: stop at
    the goal, or when the noise estimate has stabilised. For independent samples widths fall with
    1/sqrt(n), so it turns true after about 80 blocks of equal size; earlier if drift or slow modes
    keep the interval wide. It cannot distinguish these cases, nor show whether more samples would
    have helped.
    """
    recent = [float(value) for value in history[-window:]]
    if window < 2 or len(recent) < window or not all(math.isfinite(value) for value in recent):
        return False
    earlier, later = recent[: window // 2], recent[window // 2 :]
    return math.fsum(later) / len(later) >= (1 - tolerance) * math.fsum(earlier) / len(earlier)


def tukey_outliers(samples: Sequence[float]) -> tuple[int, int]:
    """Returns the numbers of mild and severe outliers: beyond 1.5 and 3 quartile ranges.

    Tukey, "Exploratory Data Analysis", 1977. They are counted, never dropped: users experience slow
    iterations, too. Of normal samples 0.7 % are mild outliers; of a skewed distribution far more,
    and of one with two modes possibly none.
    """
    if not samples:
        return 0, 0
    values = np.asarray(samples, dtype=np.float64)
    low, high = np.quantile(values, [0.25, 0.75])
    distance = np.maximum(low - values, values - high)
    severe = int((distance > 3 * (high - low)).sum())
    return int((distance > 1.5 * (high - low)).sum()) - severe, severe


def _half(values: NDArray[np.float64]) -> Half:
    low, median, high = (float(value) for value in np.quantile(values, [0.25, 0.5, 0.75]))
    return Half(
        samples=values.size,
        mean_ms=float(values.mean()),
        lower_quartile_ms=low,
        upper_quartile_ms=high,
        mad_ms=float(np.median(np.abs(values - median))),
        stddev_ms=float(values.std(ddof=1)),
    )


def _differences(first: Half, second: Half) -> list[str]:
    reasons = []
    error = _SD_PER_MAD * math.hypot(first.mad_ms, second.mad_ms) / math.sqrt(first.samples)
    change = first.mean_ms / second.mean_ms - 1
    chance = math.hypot(first.stddev_ms, second.stddev_ms) / math.sqrt(first.samples)
    chance *= _STANDARD_ERRORS / second.mean_ms
    if not -max(_FASTER_FIRST_MEAN, chance) <= change <= max(_SLOWER_FIRST_MEAN, chance):
        reasons.append(f"the first half's mean differs by {change:+.0%} from the second's")
    for name in ("lower_quartile", "upper_quartile"):
        before, after = getattr(first, f"{name}_ms"), getattr(second, f"{name}_ms")
        allowed = max(_QUARTILES * after, _STANDARD_ERRORS * _QUARTILE_ERROR * error)
        if abs(before - after) > allowed:
            quartile, off = name.replace("_", " "), f"{before / after - 1:+.0%}"
            reasons.append(f"the first half's {quartile} differs by {off} from the second's")
    spreads = sorted((first.mad_ms, second.mad_ms))
    chance = math.exp(_STANDARD_ERRORS * _MAD_ERROR * math.sqrt(2 / first.samples))
    # Spreads below 1 % of the latency may differ by any factor.
    if spreads[1] > max(_MAD_FACTOR, chance) * max(spreads[0], 0.01 * second.mean_ms):
        reasons.append(f"the spread changed from {first.mad_ms:.2g} to {second.mad_ms:.2g} ms")
    return reasons


def _unsteady(reason: str) -> Steadiness:
    return Steadiness(steady=False, reason=reason, first_half=None, second_half=None)
