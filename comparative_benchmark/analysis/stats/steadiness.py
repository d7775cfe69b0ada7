"""Tests for the end of the warm-up, and for the point where more samples no longer help."""

import math
from collections.abc import Sequence

import attrs
import numpy as np
from numpy.typing import NDArray

from comparative_benchmark.analysis.stats.analysis import latency_interval

FEWEST_SAMPLES = 8
# pyperf's limits for means and quartiles.
_SLOWER_FIRST_MEAN, _FASTER_FIRST_MEAN, _QUARTILES, _MAD_FACTOR = 0.10, 0.50, 0.05, 2.0
# Smaller differences, in standard errors, are due to chance.
_STANDARD_ERRORS = 3.0
_SD_PER_MAD = 1.4826
# Standard error of a quartile, normal samples, in sd / sqrt(n).
_QUARTILE_ERROR = 1.36
# The same for a median.
_MEDIAN_ERROR = 1.25
# Standard error of the logarithm of a MAD, times sqrt(n).
_MAD_ERROR = 1.17


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
    found = latency_interval([samples_ms])
    return found.relative_half_width if len(samples_ms) >= FEWEST_SAMPLES else math.inf


def noise_converged(history: Sequence[float], *, window: int = 16, tolerance: float = 0.05) -> bool:
    """Returns whether the last blocks no longer made the interval narrower.

    True if the mean of the later half of the last `window` relative half-widths is not more than
    `tolerance` below that of the earlier half. The idea is nvbench's `stdrel` criterion: stop at
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
    found = []
    error = _SD_PER_MAD * math.hypot(first.mad_ms, second.mad_ms) / math.sqrt(first.samples)
    change = first.mean_ms / second.mean_ms - 1
    chance = math.hypot(first.stddev_ms, second.stddev_ms) / math.sqrt(first.samples)
    chance *= _STANDARD_ERRORS / second.mean_ms
    if not -max(_FASTER_FIRST_MEAN, chance) <= change <= max(_SLOWER_FIRST_MEAN, chance):
        found.append(f"the first half's mean differs by {change:+.0%} from the second's")
    for name in ("lower_quartile", "upper_quartile"):
        before, after = getattr(first, f"{name}_ms"), getattr(second, f"{name}_ms")
        allowed = max(_QUARTILES * after, _STANDARD_ERRORS * _QUARTILE_ERROR * error)
        if abs(before - after) > allowed:
            quartile = name.replace("_", " ")
            found.append(f"the first half's {quartile} differs by {before / after - 1:+.0%}")
    spreads = sorted((first.mad_ms, second.mad_ms))
    chance = math.exp(_STANDARD_ERRORS * _MAD_ERROR * math.sqrt(2 / first.samples))
    # Spreads below 1 % of the latency may differ by any factor.
    if spreads[1] > max(_MAD_FACTOR, chance) * max(spreads[0], 0.01 * second.mean_ms):
        found.append(f"the spread changed from {first.mad_ms:.2g} to {second.mad_ms:.2g} ms")
    return found


def _unsteady(reason: str) -> Steadiness:
    return Steadiness(steady=False, reason=reason, first_half=None, second_half=None)
