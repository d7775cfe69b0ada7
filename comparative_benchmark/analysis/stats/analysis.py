"""The statistics behind every command: latencies, ratios, verdicts and means over cases.

A process is the unit of replication: iterations of one process share its memory layout and its
autotuning choices, so more of them carry no information about the next process (Kalibera & Jones,
"Rigorous benchmarking in reasonable time", ISMM 2013). Each process counts with its median, because
interruptions only ever add time, and with the logarithm of that, because ratios multiply. All
intervals are Student's t over processes. Samples are in milliseconds.
"""

import enum
import math
import statistics
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import zip_longest
from statistics import NormalDist

import attrs
import numpy as np
from numpy.typing import NDArray

# Beyond this many degrees of freedom t is normal for every purpose here.
_NORMAL_FROM = 1e4

Processes = Sequence[Sequence[float]]
Rounds = Sequence[tuple[float, float]]
Array = NDArray[np.float64]

LATENCY_LEVEL = 0.95
# At most 2 % of comparisons of equals may end in a verdict, so it uses a 98 % interval.
VERDICT_LEVEL = 0.98
# Races stop when their spread looks small, so that spread is too small on average, and plain 98 %
# intervals cover the truth in 96 % of races. Student's t therefore gets this share of the error
# that a level allows; stopping takes the rest (`benchmarks/aa_simulation.py`).
SHARE_OF_ERROR = 0.6
# For Holm's tests at an error of 5 %: far out in the tail stopping takes a little more.
FAMILY_ERROR = 0.04
NOISE_THRESHOLD = 0.01
MIN_PROCESSES = 3
# Fewer processes of nearly equal programs agree too often by chance. For equals with two process
# speeds 10 % apart, three processes give 2.8 % false verdicts (`benchmarks/aa_simulation.py`).
CLOSE = 1.25
CLOSE_VERDICT_PROCESSES = 5
# Three equal replicates have a p-value near 0, which no correction for many tests fixes.
DECISIVE_PROCESSES = 6
WITHIN_ONE_PROCESS = "within one process"

# Intervals whose limits differ by a larger factor are not printed.
_WIDEST = 1e4
# The samples of a single process are split into at most this many batches of consecutive samples.
_MOST_BATCHES = 20
# Beyond this many decades a number is not a latency, and its square may not fit a float.
_MOST_DIGITS = 15
# Two processes that differ can have an interval wider than a float.
_LARGEST_LOG = 700.0


@lru_cache(maxsize=1024)
def student_quantile(probability: float, degrees: float) -> float:
    """Returns the quantile of Student's t for a probability of at least 0.5.

    With t = sqrt(df) tan(angle) the distribution is the integral of cos(angle)^(df - 1) (Abramowitz
    & Stegun 26.7), computed by Gauss-Legendre and inverted by bisection: exact to 1e-9 for any real
    number of degrees of freedom of at least 1.
    """
    if degrees > _NORMAL_FROM:
        return NormalDist().inv_cdf(probability)
    nodes, weights = _gauss_legendre()
    target = (probability - 0.5) / _density_at_zero(degrees)
    low, high = 0.0, math.pi / 2
    for _ in range(80):
        half = (low + high) / 4
        area = half * float(weights @ np.cos(half * (nodes + 1)) ** (degrees - 1))
        low, high = (2 * half, high) if area < target else (low, 2 * half)
    return math.sqrt(degrees) * math.tan(low)


def student_tail(distance: float, degrees: float) -> float:
    """Returns P(T > distance), with a small relative error far out in the tail."""
    first = math.atan(distance / math.sqrt(degrees))
    nodes, weights = _gauss_legendre()
    # With many degrees of freedom there is nothing farther out, and nodes there would be wasted.
    half = min(math.pi / 2 - first, 12 / math.sqrt(degrees)) / 2
    area = half * float(weights @ np.cos(half * (nodes + 1) + first) ** (degrees - 1))
    return area * _density_at_zero(degrees)


def _density_at_zero(degrees: float) -> float:
    """Returns the density of the angle at 0."""
    ratio = math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2)
    return math.exp(ratio) / math.sqrt(math.pi)


@lru_cache(maxsize=1)
def _gauss_legendre() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    nodes, weights = np.polynomial.legendre.leggauss(96)
    return nodes, weights


class SampleError(ValueError):
    """Invalid or insufficient samples; the message is the reason for users."""


class Verdict(enum.Enum):
    """The outcome of a comparison; `UNCLEAR` unless there is evidence.

    Attributes:
      FASTER: the interval of the ratio is all below 1, the estimate beyond the noise threshold.
      SLOWER: the interval of the ratio is all above 1, the estimate beyond the noise threshold.
      SAME: the interval lies within the noise threshold around 1.
      UNCLEAR: the measurements support none of these.
      INCOMPARABLE: a ratio is impossible; the reason is given separately.
    """

    FASTER = "faster"
    SLOWER = "slower"
    SAME = "same"
    UNCLEAR = "unclear"
    INCOMPARABLE = "incomparable"


@attrs.frozen(kw_only=True)
class Interval:
    """An estimate with its confidence interval.

    Attributes:
      level: how often such intervals cover the true value, e.g. 0.95.
      processes: number of independent processes; with 1 the interval lacks the spread between
        processes, and is too narrow.
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

    @property
    def inverse(self) -> "Interval":
        """The interval of the inverse: for a ratio of latencies, the speed-up."""
        return attrs.evolve(self, estimate=1 / self.estimate, low=1 / self.high, high=1 / self.low)

    @property
    def is_open(self) -> bool:
        """Whether the limits are too far apart to be useful, as for two unequal processes."""
        return self.high > _WIDEST * self.low

    @property
    def scope(self) -> str:
        """Coverage of the interval, e.g. `95 %` or `95 %, within one process`."""
        within = f", {WITHIN_ONE_PROCESS}" if self.processes == 1 else ""
        return f"{100 * self.level:.3g} %{within}"


@attrs.frozen(kw_only=True)
class LogRatio:
    """Logarithm of candidate over baseline, and each process's contribution to its error.

    An error term is the deviation of a process from its mean, scaled so that the sum of the squares
    of all terms is the variance of the estimate. Ratios to one baseline have terms in common, which
    `mean_ratio` takes into account.

    Attributes:
      shared: terms of replicates (paired) or of the baseline's processes (unpaired), by index.
      own: terms of the candidate's processes; empty for paired ratios.
      processes: number of processes of the side that has fewer.
    """

    estimate: float
    shared: tuple[float, ...]
    own: tuple[float, ...] = ()
    processes: int

    def interval(self, level: float = VERDICT_LEVEL) -> Interval:
        """Returns the ratio with its interval."""
        return mean_ratio([[self]], level)

    @property
    def spread(self) -> tuple[float, float]:
        """Variance of the estimate, and its degrees of freedom."""
        error, degrees = _error([[self]])
        return error * error, degrees

    @property
    def p_value(self) -> float | None:
        """Probability of such a ratio between equals; None if no verdict is possible.

        It belongs to the test behind the verdict: below 0.02 exactly if the 98 % interval excludes
        1.
        """
        if self.processes < MIN_PROCESSES:
            return None
        error, degrees = _error([[self]])
        if not error:
            return 0.0 if self.estimate else 1.0
        return min(1.0, 2 * student_tail(abs(self.estimate) / error, degrees) / SHARE_OF_ERROR)


def latency_interval(processes: Processes, *, level: float = LATENCY_LEVEL) -> Interval:
    """Returns the mean over processes of the per-process median latency, with its interval.

    It is a mean over processes because a process with a slow layout is real, its users wait for it,
    and a median over five processes would hide it. Limits are symmetric in the logarithm.

    Assumes that processes are independent. Otherwise it fails: processes that ran in parallel on a
    throttled machine agree with each other and are all wrong. If a race stopped at its precision
    goal, a 95 % interval covers the truth in 94.5 % of cases.

    Raises:
      SampleError: no samples, a single one, or samples that are not positive finite numbers.
    """
    sound = checked(processes)
    if len(sound) > 1:
        medians = [_median(values) for values in sound]
        width = float(latency_width(np.log(medians), level))
        return _interval_around(statistics.fmean(medians), width, level, len(medians))
    terms = _terms([np.log(sound[0])])
    error = math.sqrt(math.fsum(term * term for term in terms))
    width = student_quantile((1 + level) / 2, len(terms) - 1.0) * error
    return _interval_around(_median(sound[0]), width, level, 1)


def latency_width(logs: Array, level: float = LATENCY_LEVEL) -> Array:
    """Returns the half-width of a latency's interval in the logarithm.

    Args:
      logs: float64[..., processes], logarithms of process medians; leading axes are experiments.
      level: level of the interval.
    """
    count = logs.shape[-1]
    quantile = student_quantile((1 + level) / 2, count - 1.0)
    width: Array = quantile / math.sqrt(count) * np.std(logs, axis=-1, ddof=1)
    return width


def paired_ratio(paired: Sequence[Rounds]) -> LogRatio:
    """Returns candidate over baseline from interleaved measurements.

    The estimate is the mean over replicates of the median over rounds of the log ratio; logs, so
    that a/b and b/a are reciprocal (Fleming & Wallace, CACM 29(3), 1986). Effects on both sides of
    a round (drift, clock, neighbours) cancel; differences between processes do not, and determine
    the interval.

    Fails if the order within a round matters (one side warms the cache of the other) and is not
    shuffled, and if all processes of a side share an accident: a compiler's choice that the first
    process passes on through the cache is in the ratio, not in its interval.

    Args:
      paired: for each replicate (a fresh process of each side) its rounds, each the block medians
        (candidate_ms, baseline_ms) that were measured one right after the other.

    Raises:
      SampleError: no rounds, a single one, or a time that is not a positive finite number.
    """
    if any(len(pair) != 2 for rounds in paired for pair in rounds):
        raise SampleError("a round lacks one of the two competitors")
    sides = [checked([[pair[side] for pair in rounds] for rounds in paired]) for side in (0, 1)]
    logs = [np.log(a) - np.log(b) for a, b in zip(*sides, strict=True)]
    return LogRatio(estimate=_mean_of_medians(logs), shared=_terms(logs), processes=len(logs))


def unpaired_ratio(candidate: Processes, baseline: Processes) -> LogRatio:
    """Returns candidate over baseline of samples taken at different times.

    Welch's t over the logarithms of process medians (Biometrika 34, 1947). Fails undetectably if
    the machine changed between the two measurements: that difference is in the ratio and not in the
    interval. Race both sides if it matters.

    Raises:
      SampleError: as for `latency_interval`, for either side.
    """
    new, old = ([np.log(values) for values in checked(side)] for side in (candidate, baseline))
    return LogRatio(
        estimate=_mean_of_medians(new) - _mean_of_medians(old),
        shared=tuple(-term for term in _terms(old)),
        own=_terms(new),
        processes=min(len(new), len(old)),
    )


def mean_ratio(groups: Iterable[Sequence[LogRatio]], level: float = VERDICT_LEVEL) -> Interval:
    """Returns the geometric mean of ratios, with its interval.

    The interval applies to another measurement of the same cases, not to other workloads. Errors
    add up within a group, process by process, and are independent between groups; degrees of
    freedom are Satterthwaite's (Biometrics Bulletin 2, 1946). Cases that share a disturbance of the
    machine are not independent, and the interval is then too narrow.

    Args:
      groups: ratios, grouped by common baseline processes or replicates.
      level: level of the interval.
    """
    groups = [list(group) for group in groups]
    ratios = [ratio for group in groups for ratio in group]
    centre = math.fsum(ratio.estimate for ratio in ratios) / len(ratios)
    error, degrees = _error(groups)
    processes = min(ratio.processes for ratio in ratios)
    width = ratio_quantile(level, degrees) * error / len(ratios)
    return _interval_around(_exp(centre), width, level, processes)


def verdict(
    interval: Interval | None, *, threshold: float = NOISE_THRESHOLD, processes: int | None = None
) -> tuple[Verdict, str]:
    """Returns the verdict on a ratio candidate/baseline, and its reason.

    `FASTER` or `SLOWER` if the whole interval lies on one side of 1, the estimate is beyond the
    threshold, and a ratio up to `CLOSE` has at least `CLOSE_VERDICT_PROCESSES` processes; `SAME` if
    the whole interval lies within the threshold (two one-sided tests, Schuirmann 1987); otherwise
    `UNCLEAR`. At most 2 % of equals get a verdict, however noisy they are.

    Fails if the interval does: see `paired_ratio` and `unpaired_ratio`. Limits are reciprocal:
    swapping the sides mirrors the verdict.

    Args:
      interval: interval of the ratio; None without one.
      threshold: smaller differences are not relevant.
      processes: number of processes of the side that has fewer; by default the interval's.
    """
    if not (math.isfinite(threshold) and threshold >= 0):
        raise ValueError(f"expected a finite threshold of at least 0, got {threshold}")
    if interval is None:
        return Verdict.INCOMPARABLE, "no samples"
    limits = (interval.low, interval.estimate, interval.high)
    if not all(math.isfinite(value) and value > 0 for value in limits):
        return Verdict.INCOMPARABLE, "the ratio is not a positive finite number"
    if not interval.low <= interval.estimate <= interval.high:
        return Verdict.INCOMPARABLE, "the ratio lies outside its interval"
    processes = interval.processes if processes is None else processes
    counted = f"{processes} process{'es' if processes != 1 else ''}"
    if processes < MIN_PROCESSES:
        within = f" (the interval is {WITHIN_ONE_PROCESS})" if processes == 1 else ""
        return Verdict.UNCLEAR, f"{counted}{within}; a verdict needs at least {MIN_PROCESSES}"
    if interval.level < VERDICT_LEVEL:
        return Verdict.UNCLEAR, f"a {interval.level:.0%} interval; a verdict needs 98 %"
    distance = max(interval.estimate, 1 / interval.estimate)
    if interval.low > 1 / (1 + threshold) and interval.high < 1 + threshold:
        return Verdict.SAME, f"the whole interval is within {threshold:.2g} of 1"
    if interval.low <= 1 <= interval.high:
        return Verdict.UNCLEAR, "the interval contains 1 and extends beyond the threshold"
    if distance <= 1 + threshold:
        return Verdict.UNCLEAR, f"the difference does not exceed {threshold:.2g}"
    if processes < CLOSE_VERDICT_PROCESSES and distance <= CLOSE:
        return Verdict.UNCLEAR, (
            f"needs more processes: {counted}, but programs within {CLOSE:g}x of each other need "
            f"{CLOSE_VERDICT_PROCESSES}"
        )
    return Verdict.FASTER if interval.high < 1 else Verdict.SLOWER, "the interval excludes 1"


def decisive(ratios: Sequence[LogRatio], direction: Verdict) -> list[bool]:
    """Returns which ratios are significant in one direction after correction for many tests.

    Holm's procedure on the one-sided p-values of the verdict's own test: if all are equals, the
    chance of any false finding is 5 %, however many there are. A ratio that has a verdict is
    decisive in any family of up to four. Ratios of fewer than `DECISIVE_PROCESSES` processes are
    never decisive.

    Args:
      ratios: ratios of all comparisons, including those without a verdict.
      direction: `SLOWER` or `FASTER`.
    """
    sign = 1 if direction is Verdict.SLOWER else -1
    return holm([_one_sided(ratio, sign) for ratio in ratios], FAMILY_ERROR)


def holm(p_values: Sequence[float | None], error: float) -> list[bool]:
    """Returns which tests of a family reject, by Holm's procedure (Scand. J. Stat. 6, 1979).

    Args:
      p_values: one per test; None is not in the family, and never rejects.
      error: maximum chance that any true hypothesis of the family is rejected.
    """
    rejected = [False] * len(p_values)
    ranked = sorted((value, index) for index, value in enumerate(p_values) if value is not None)
    for rank, (value, index) in enumerate(ranked):
        if value > error / (len(ranked) - rank):
            break
        rejected[index] = True
    return rejected


def checked(processes: Processes) -> list[Array]:
    """Returns the samples as arrays.

    Raises:
      SampleError: the samples are invalid; the message is the reason.
    """
    if not len(processes) or not all(len(samples) for samples in processes):
        raise SampleError("no samples")
    arrays = []
    for samples in processes:
        try:
            values = np.asarray(samples, dtype=np.float64)
        except (TypeError, ValueError, OverflowError):
            raise SampleError("a sample is not a number") from None
        if not np.isfinite(values).all():
            raise SampleError("a sample is NaN or infinite")
        if (values <= 0).any():
            raise SampleError("a sample is zero or negative")
        if values.min() < 10**-_MOST_DIGITS or values.max() > 10**_MOST_DIGITS:
            raise SampleError(f"a sample is not between 1e-{_MOST_DIGITS} and 1e{_MOST_DIGITS} ms")
        arrays.append(values)
    if len(arrays) == 1 and arrays[0].size < 2:
        raise SampleError("only one sample")
    return arrays


def ratio_quantile(level: float, degrees: float) -> float:
    """Returns the half-width of a log ratio's interval in standard errors."""
    return student_quantile(ratio_probability(level), degrees)


def ratio_probability(level: float = VERDICT_LEVEL) -> float:
    """Returns the probability whose quantile of Student's t is the limit of such an interval."""
    return 1 - SHARE_OF_ERROR * (1 - level) / 2


def _interval_around(estimate: float, width: float, level: float, processes: int) -> Interval:
    """Returns an interval around an estimate with this half-width in the logarithm."""
    factor = _exp(width)
    return Interval(
        estimate=estimate,
        low=max(estimate / factor, min(estimate, _exp(-_LARGEST_LOG))),
        high=min(estimate * factor, max(estimate, _exp(_LARGEST_LOG))),
        level=level,
        processes=processes,
    )


def _terms(logs: Sequence[Array]) -> tuple[float, ...]:
    """Returns the error terms of processes, see `LogRatio`; for a single process, of its batches.

    Batch means with medians (Law & Kelton, "Simulation Modeling and Analysis", ch. 9): up to 20
    batches of consecutive samples, so that autocorrelation shorter than a batch is in the error.
    """
    units = list(logs)
    if len(logs) == 1:
        size = logs[0].size
        units = np.array_split(logs[0], min(_MOST_BATCHES, max(2, size // 2)))
    medians = [_median(values) for values in units]
    mean, scale = statistics.fmean(medians), math.sqrt(len(medians) * (len(medians) - 1))
    return tuple((median - mean) / scale for median in medians)


def _error(groups: Iterable[Sequence[LogRatio]]) -> tuple[float, float]:
    """Returns the standard error of the sum of all estimates, and its degrees of freedom."""
    components: list[tuple[Sequence[float], int]] = []
    for group in groups:
        columns = zip_longest(*(ratio.shared for ratio in group), fillvalue=0.0)
        fewest = min(len(ratio.shared) for ratio in group)
        components.append(([math.fsum(column) for column in columns], fewest - 1))
        components += [(ratio.own, len(ratio.own) - 1) for ratio in group if ratio.own]
    variances = [(math.fsum(term * term for term in terms), df) for terms, df in components]
    total = math.fsum(variance for variance, _ in variances)
    if not total:
        return 0.0, 1.0
    return math.sqrt(total), total**2 / math.fsum(v * v / df for v, df in variances)


def _one_sided(ratio: LogRatio, sign: int) -> float | None:
    both = ratio.p_value
    if both is None or ratio.processes < DECISIVE_PROCESSES:
        return None
    return both / 2 if sign * ratio.estimate > 0 else 1 - both / 2


def _mean_of_medians(logs: Sequence[Array]) -> float:
    return statistics.fmean(_median(values) for values in logs)


def _median(values: Array) -> float:
    return float(np.median(values))


def _exp(value: float) -> float:
    return math.exp(min(max(value, -_LARGEST_LOG), _LARGEST_LOG))
