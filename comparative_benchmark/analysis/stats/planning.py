"""Plans of races: warm-up and sampling, the order of competitors, and the number of processes.

Samples are a fixed number, or taken until the results are precise enough. The power of a race gives
the processes that an effect requires, and the effect that a budget allows. A race ends when its
trials have enough processes; benchmarks simulate many races at once.

A competitor that often starts second, or is often measured after the same rival, has an advantage
or a disadvantage that more processes do not remove. So orders are the rows of a Williams design
(Williams 1949, "Experimental designs balanced for the estimation of residual effects of
treatments"): each competitor is equally often in each position, and equally often directly after
each other competitor. Everything else is random: the assignment of competitors to the design, and
the order of its rows.
"""

import math
import random
import statistics
from collections.abc import Iterator, Sequence
from statistics import NormalDist
from typing import ClassVar, Self

import attrs
import numpy as np
from numpy.typing import NDArray

from comparative_benchmark.analysis.stats.analysis import (
    CLOSE,
    LATENCY_LEVEL,
    MIN_PROCESSES,
    VERDICT_LEVEL,
    Array,
    Rounds,
    SampleError,
    latency_width,
    ratio_quantile,
    student_quantile,
)
from comparative_benchmark.analysis.stats.steadiness import FEWEST_SAMPLES

_TIMER_STEPS = 10_000
# Samples are sent through a pipe and stored in the results.
_MOST_ITERATIONS = 2000

# Nearly equal programs get at least this many: fewer agree too often by chance, and most false
# verdicts would come from races that stopped at three or four.
CLOSE_PROCESSES = 6
POWER = 0.9
# Variance of a median / variance of a mean, normal samples.
_MEDIAN_VARIANCE = math.pi / 2
# Standard deviation / median absolute deviation, normal samples.
_SD_PER_MAD = 1.4826
# The median of |x - y| over the standard deviation of x - y, normal samples.
_MEDIAN_DIFFERENCE_PER_SD = 0.6745

PRECISION, NOISE, GO_ON = "precision", "noise", ""
# A ratio far from 1 need not be resolved to `effect`: a quarter of its distance is enough.
_SHARE_OF_DISTANCE = 0.25


@attrs.frozen(kw_only=True)
class FixedCounts:
    """The rule of `-w` and `-iter`: one process with this many iterations."""

    warmup_iterations: int
    iterations: int
    min_processes: ClassVar[int] = 1


@attrs.frozen(kw_only=True)
class CompileOnly:
    """The rule of `--compile-only`: pairs of a cold and a warm compilation, and no latencies.

    Each pair has a separate cache directory, so that there are as many cold compilations as pairs.
    """

    pairs: int = 6
    seed: int | None = 0

    @property
    def min_processes(self) -> int:
        """Number of processes of each trial."""
        return 2 * self.pairs


@attrs.frozen(kw_only=True)
class SamplingRule:
    """Samples until the results are precise enough, cannot become so, or the budget is spent.

    Attributes:
      goal: relative half-width of a latency's 95 % interval at which to stop.
      effect: relative difference that a race should find with a probability of 90 %.
      min_processes: fresh processes for each trial; fewer than 3 support no verdict. They are the
        pilot that determines how many more are needed.
      max_processes: where to stop even if that is not reached.
      min_rounds, max_rounds: rounds of one process; a round has a block of each competitor.
      block_ms: target duration of a block; longer than short disturbances of the machine.
      round_budget_s: measuring time of one process, after which no round is started.
      warmup_floor_ms: minimum duration of a warm-up: clocks, allocators and caches settle in time,
        not in iterations, which may be far shorter than a millisecond.
      warmup_budget_ms: duration after which a trial that is not steady is `unsteady`, if it has had
        enough iterations to test.
      steady_window: samples at the end of the warm-up that are tested for a trend.
      steady_span_ms: time after which fewer samples, at least 8, are enough for that test, because
        processes warm up in time rather than in iterations.
      refresh_below_ms: in each block, shorter iterations are preceded by an unmeasured one, because
        others have used the caches meanwhile. Longer ones read far more than caches hold: a first
        iteration takes no longer than the next (reasoned, not measured yet).
      trial_budget_s: time of a trial after which it gets no further process beyond `min_processes`.
        Start-up counts once it has six processes (`planning.CLOSE_PROCESSES`).
      seed: determines the order of starts and of blocks; recorded with the results. None until a
        run has drawn one.
    """

    goal: float = 0.01
    effect: float = 0.03
    min_processes: int = 3
    max_processes: int = 10
    min_rounds: int = 10
    max_rounds: int = 30
    block_ms: float = 40.0
    round_budget_s: float = 10.0
    warmup_floor_ms: float = 250.0
    warmup_budget_ms: float = 10_000.0
    steady_window: int = 20
    steady_span_ms: float = 1000.0
    refresh_below_ms: float = 50.0
    trial_budget_s: float = 30.0
    seed: int | None = 0

    def warmup_iterations(self, samples_ms: Sequence[float]) -> int:
        """Returns how many iterations to run before the next test: some 20 ms, at least 3.

        A test takes longer than an iteration of a few microseconds: a program of 4 us would be
        tested hundreds of times before the floor is reached.
        """
        if not samples_ms:
            return 5
        look_ms = 20 / max(statistics.median(samples_ms[-_MOST_ITERATIONS:]), 1e-3)
        return max(3, min(_MOST_ITERATIONS, math.ceil(look_ms)))

    def warm_up_end(self, samples_ms: Sequence[float]) -> Sequence[float]:
        """Returns the part of a warm-up that is tested for a trend."""
        return samples_ms[-self._window(samples_ms) :]

    def is_warm_up_enough(self, samples_ms: Sequence[float]) -> bool:
        """Returns whether a warm-up that looks steady may end."""
        if self._is_over_budget(samples_ms):
            return True
        long_enough = sum(samples_ms) >= self.warmup_floor_ms
        return long_enough and len(samples_ms) >= self._window(samples_ms)

    def is_warm_up_spent(self, samples_ms: Sequence[float]) -> bool:
        """Returns whether an unsteady warm-up has used up its budget and iterations."""
        return self._is_over_budget(samples_ms) and len(samples_ms) >= 1.5 * self.steady_window

    def _window(self, samples_ms: Sequence[float]) -> int:
        """Returns the number of samples to test: as many as the span takes, within limits.

        If the warm-up budget is spent, the first half of the samples is left out.
        """
        fitting = self.steady_span_ms / max(statistics.median(samples_ms), 1e-3)
        if self._is_over_budget(samples_ms):
            fitting = min(fitting, len(samples_ms) // 2)
        return max(FEWEST_SAMPLES, math.ceil(min(self.steady_window, fitting)))

    def refreshes(self, median_ms: float) -> bool:
        """Returns whether a block begins with an unmeasured iteration."""
        return median_ms < self.refresh_below_ms

    def _is_over_budget(self, samples_ms: Sequence[float]) -> bool:
        return sum(samples_ms) >= self.warmup_budget_ms

    def iterations_per_block(self, median_ms: float, timer_ns: float = 0.0) -> int:
        """Returns the number of iterations in a block.

        A block takes about `block_ms`, and never less than 10,000 steps of the timer, so that its
        own time is known to 0.01 %.
        """
        block_ms = max(self.block_ms, _TIMER_STEPS * timer_ns / 1e6)
        return max(1, min(_MOST_ITERATIONS, math.ceil(block_ms / max(median_ms, 1e-3))))


@attrs.define
class BalancedOrder:
    """Yields orders of competitors without end; after each whole design they are balanced.

    A design has as many orders as competitors, or twice as many if their number is odd.

    Attributes:
      count: number of competitors.
      random: decides everything that is not balanced.
    """

    count: int
    random: random.Random
    _rows: list[list[int]] = attrs.field(factory=list, init=False)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> list[int]:
        if not self._rows:
            names = self.random.sample(range(self.count), self.count)
            self._rows = [[names[place] for place in row] for row in williams_design(self.count)]
            self.random.shuffle(self._rows)
        return self._rows.pop()


def williams_design(count: int) -> list[list[int]]:
    """Returns the orders of a Williams design for treatments 0 to `count` - 1."""
    if count < 2:
        return [list(range(count))]
    first = list(_zigzag(count))
    rows = [[(place + shift) % count for place in first] for shift in range(count)]
    # With an odd number, only the design and its mirror image together balance who follows whom.
    return rows if count % 2 == 0 else rows + [row[::-1] for row in rows]


def _zigzag(count: int) -> Iterator[int]:
    """Yields 0, 1, n - 1, 2, n - 2, ...: neighbours differ by each number once if n is even."""
    for index in range(count):
        yield (index + 1) // 2 if index % 2 else (count - index // 2) % count


def replicate_variances(paired: Sequence[Rounds]) -> tuple[Array, Array]:
    """Returns the log ratio of each replicate, and its variance from the scatter of its rounds.

    Medians over rounds; the variances are from median absolute deviations, so that spikes do not
    count.

    Raises:
      SampleError: fewer than two replicates, or fewer than two rounds in one.
    """
    if len(paired) < 2 or any(len(rounds) < 2 for rounds in paired):
        raise SampleError("a pilot needs at least two replicates with at least two rounds")
    logs = [np.log([a / b for a, b in rounds]) for rounds in paired]
    medians = np.array([np.median(values) for values in logs])
    variances = [variance_of_median(values) for values in logs]
    return medians, np.array(variances)


def variance_of_median(rounds: Array) -> Array:
    """Returns the variance of the median over the last axis, float64[..., rounds]."""
    centre = np.median(rounds, axis=-1, keepdims=True)
    sd = _SD_PER_MAD * np.median(np.abs(rounds - centre), axis=-1)
    variance: Array = _MEDIAN_VARIANCE * sd * sd / rounds.shape[-1]
    return variance


def ratio_sd(medians: Array, variances: Array) -> Array:
    """Returns the standard deviation of a replicate's log ratio, estimated from a pilot.

    Never below the scatter of the rounds within the replicates: replicates agree better than that
    only by chance. With 3 or a few more replicates it is known to a factor of 2 or 3 at best.

    Args:
      medians: float64[..., replicates], their log ratios.
      variances: of the same shape, see `variance_of_median`.
    """
    between = np.var(medians, axis=-1, ddof=1)
    sd: Array = np.sqrt(np.maximum(between, np.mean(variances, axis=-1)))
    return sd


def decidable_effect(sd: float, processes: int) -> float:
    """Returns the relative difference that a race finds with probability `POWER`.

    Args:
      sd: standard deviation of one replicate's log ratio.
      processes: number of replicates, at least 2.
    """
    if not math.isfinite(sd) or sd < 0:
        raise ValueError("a standard deviation must be finite and not negative")
    return math.expm1(min(reach(processes) * sd, 700.0))


def processes_needed(sd: float, *, effect: float = 0.03, level: float = VERDICT_LEVEL) -> int:
    """Returns the number of replicates, at least 3, that find a relative difference of `effect`.

    It is the smallest number whose `decidable_effect` is not above it; beyond 100, up to 2 % more.
    A pilot that underestimates the standard deviation makes this too small.
    """
    if not math.isfinite(sd) or effect <= 0:
        raise ValueError("the standard deviation must be finite, and the effect positive")
    needed = MIN_PROCESSES
    while reach(needed, level=level) * sd > math.log1p(effect):
        # When t is nearly normal, only the square root counts.
        needed += max(1, needed // 50)
    return needed


def reach(processes: int, *, level: float = VERDICT_LEVEL) -> float:
    """Returns the log ratio that a race finds with probability `POWER`, in sd of a replicate.

    (t + z * sqrt(1 + t^2 / 2 df)) / sqrt(K), with t the quantile of the interval, z the normal one
    of the power and K - 1 degrees of freedom (Johnson & Welch, Biometrika 31, 1940). A few percent
    more than the exact noncentral t requires, with 3 processes 8 %.
    """
    quantile = ratio_quantile(level, processes - 1.0)
    scatter = math.sqrt(1 + quantile**2 / (2 * (processes - 1)))
    return (quantile + NormalDist().inv_cdf(POWER) * scatter) / math.sqrt(processes)


@attrs.frozen(kw_only=True)
class Outlook:
    """Expected power of a race.

    Attributes:
      processes: number of processes of each competitor that its budgets allow.
      decidable: relative difference that this number finds in 90 % of races.
      effect: relative difference that the race should find; this takes `needed` processes.
    """

    processes: int
    decidable: float
    effect: float
    needed: int

    @property
    def can_decide(self) -> bool:
        """Returns whether the effect can be found within the budget."""
        return self.decidable <= self.effect

    def __str__(self) -> str:
        least = f"{_percent(self.decidable)} or more"
        text = f"{self.processes} processes per competitor can detect differences of {least}"
        wanted = _percent(self.effect)
        if self.can_decide:
            return f"on this machine, {text}"
        return (
            f"on this machine, {text}; detecting {wanted} would take {self.needed} processes "
            "per competitor"
        )


def outlook(
    sd: float,
    rule: SamplingRule,
    *,
    process_s: float | None = None,
    measured_s: float | None = None,
) -> Outlook:
    """Returns the power that this machine allows under a sampling rule.

    Args:
      sd: standard deviation of one replicate's log ratio, see `ratio_sd` and `sd_of_noise_floor`.
      rule: its budgets and the effect to find.
      process_s: time that a process takes from start to end; None if unknown, in which case only
        the number of processes limits the race.
      measured_s: the part of it that counts until there are six processes.
    """
    processes = rule.max_processes
    if process_s:
        # A trial starts another process as long as its time is not up.
        fitting = math.floor(rule.trial_budget_s / process_s) + 1
        early = math.floor(rule.trial_budget_s / (measured_s or process_s)) + 1
        processes = min(processes, max(fitting, min(CLOSE_PROCESSES, early)))
    processes = max(processes, rule.min_processes, 2)
    return Outlook(
        processes=processes,
        decidable=decidable_effect(sd, processes),
        effect=rule.effect,
        needed=max(processes_needed(sd, effect=rule.effect), CLOSE_PROCESSES),
    )


def sd_of_noise_floor(median_difference: float, processes: int) -> float:
    """Returns the sd of one replicate's log ratio from differences of runs of one program.

    Args:
      median_difference: median of the relative differences between two runs of unchanged programs.
      processes: number of processes of each run.
    """
    return math.log1p(median_difference) / _MEDIAN_DIFFERENCE_PER_SD * math.sqrt(processes)


def widest_sd_for_precision(goal: float, most: int) -> float:
    """Returns the largest sd of process latencies for which `most` processes reach the precision.

    Args:
      goal: relative half-width of a latency's 95 % interval.
      most: maximum number of processes, at least 3.
    """
    quantile = student_quantile((1 + LATENCY_LEVEL) / 2, most - 1.0)
    return math.asinh(goal) * math.sqrt(most) / quantile


def _percent(share: float) -> str:
    percent = 100 * share
    return f"{percent:.1f} %" if percent < 9.95 else f"{percent:.0f} %"


def stop_reasons(
    logs: Array,
    ratios: Array | None,
    variances: Array | None,
    rule: SamplingRule,
    *,
    competitors: int = 2,
) -> NDArray[np.str_]:
    """Returns why trials need no further process; `GO_ON` if they do.

    The processes so far are the pilot. `PRECISION`: the interval of the latency is as narrow as the
    goal. `NOISE`: it is not, and the spread between the processes is such that `max_processes`
    would not make it so. In both cases the ratio to the baseline, if any, has enough processes to
    find `effect`, and up to a factor of `CLOSE` at least `CLOSE_PROCESSES`. Among more than two
    competitors it has enough to be found among all pairs of them, see
    `results.comparing.compare.Family`.

    A trial that races alone is measured for comparison with another file, where nothing is paired
    and each further process makes the interval narrower: noise is then not a reason to stop.

    The decision depends on the spread, not on whether a verdict would be reached by now. This alone
    does not keep the level: the spread that allows to stop is the denominator of t, so races stop
    when it happens to be small (Stein, Ann. Math. Stat. 16, 1945, has a remedy, for which races are
    too short). `analysis.SHARE_OF_ERROR` compensates for it.

    Args:
      logs: float64[..., processes], logarithms of the process medians of each trial; leading axes
        are trials.
      ratios: of the same shape or shorter, log ratios of the replicates; None without a baseline.
      variances: of the shape of `ratios`, see `planning.variance_of_median`.
      rule: the sampling rule.
      competitors: number of competitors, including the trial.
    """
    processes = logs.shape[-1]
    if processes < max(rule.min_processes, 2):
        return np.full(logs.shape[:-1], GO_ON)
    precise = np.sinh(latency_width(logs)) <= rule.goal
    widest = widest_sd_for_precision(rule.goal, rule.max_processes)
    hopeless = np.std(logs, axis=-1, ddof=1) > widest
    if competitors == 1:
        hopeless = np.zeros_like(hopeless)
        precise &= processes >= min(CLOSE_PROCESSES, rule.max_processes)
    reasons = np.where(precise, PRECISION, np.where(hopeless, NOISE, GO_ON))
    if ratios is None or variances is None:
        return reasons
    return np.where(_has_power(ratios, variances, rule, competitors), reasons, GO_ON)


def _has_power(
    ratios: Array, variances: Array, rule: SamplingRule, competitors: int
) -> NDArray[np.bool_]:
    replicates = ratios.shape[-1]
    sd, distance = ratio_sd(ratios, variances), np.abs(np.median(ratios, axis=-1))
    least = math.log1p(rule.effect)
    enough = reach(replicates) * sd <= np.maximum(least, _SHARE_OF_DISTANCE * distance)
    if competitors > 2:
        level = 1 - (1 - VERDICT_LEVEL) / math.comb(competitors, 2)
        enough &= reach(replicates, level=level) * sd <= np.maximum(least, distance)
    if replicates >= min(CLOSE_PROCESSES, rule.max_processes):
        return np.asarray(enough)
    return np.asarray(enough & (distance > math.log(CLOSE)))
