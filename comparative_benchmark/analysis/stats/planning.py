"""Power of a race: the processes that an effect requires, and the effect that a budget allows."""

import math
from collections.abc import Sequence
from statistics import NormalDist

import attrs
import numpy as np

from comparative_benchmark.analysis.stats.analysis import (
    LATENCY_LEVEL,
    MIN_PROCESSES,
    VERDICT_LEVEL,
    Array,
    Rounds,
    SampleError,
    ratio_quantile,
)
from comparative_benchmark.analysis.stats.sampling_rule import SamplingRule
from comparative_benchmark.analysis.stats.student import student_quantile

# Nearly equal programs get at least this many: fewer agree too often by chance, and most false
# verdicts would come from races that stopped at three or four.
CLOSE_PROCESSES = 6
POWER = 0.9
# Variance of a median over that of a mean, normal samples.
_MEDIAN_VARIANCE = math.pi / 2
# A standard deviation over a median absolute deviation, normal samples.
_SD_PER_MAD = 1.4826
# The median of |x - y| over the standard deviation of x - y, normal samples.
_MEDIAN_DIFFERENCE_PER_SD = 0.6745


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


def decidable_effect(
    sd: float, processes: int, *, power: float = POWER, level: float = VERDICT_LEVEL
) -> float:
    """Returns the relative difference that a race finds with probability `power`.

    Args:
      sd: standard deviation of one replicate's log ratio.
      processes: number of replicates, at least 2.
      power: probability of a right verdict.
      level: level of the interval behind the verdict.
    """
    if not math.isfinite(sd) or sd < 0:
        raise ValueError("a standard deviation must be finite and not negative")
    return math.expm1(min(reach(processes, power=power, level=level) * sd, 700.0))


def processes_needed(
    sd: float, *, effect: float = 0.03, power: float = POWER, level: float = VERDICT_LEVEL
) -> int:
    """Returns the number of replicates, at least 3, that find a relative difference of `effect`.

    It is the smallest number whose `decidable_effect` is not above it. A pilot that underestimates
    the standard deviation makes this too small.
    """
    if not math.isfinite(sd) or effect <= 0:
        raise ValueError("a standard deviation must be finite and the effect positive")
    needed = MIN_PROCESSES
    while reach(needed, power=power, level=level) * sd > math.log1p(effect):
        # When t is nearly normal, only the square root counts.
        needed += max(1, needed // 50)
    return needed


def reach(processes: int, *, power: float = POWER, level: float = VERDICT_LEVEL) -> float:
    """Returns the log ratio that a race finds with probability `power`, in sd of a replicate.

    (t + z * sqrt(1 + t^2 / 2 df)) / sqrt(K), with t the quantile of the interval, z the normal one
    of the power and K - 1 degrees of freedom (Johnson & Welch, Biometrika 31, 1940). A few percent
    more than the exact noncentral t requires, with 3 processes 8 %.
    """
    quantile = ratio_quantile(level, processes - 1.0)
    scatter = math.sqrt(1 + quantile**2 / (2 * (processes - 1)))
    return (quantile + NormalDist().inv_cdf(power) * scatter) / math.sqrt(processes)


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
        least = _percent(self.decidable)
        found = f"a race of {self.processes} processes finds differences of {least} or more"
        wanted = _percent(self.effect)
        if self.can_decide:
            return f"on this machine {found}"
        return (
            f"on this machine {found}; {wanted} would take "
            f"{self.needed} processes of each competitor"
        )


def outlook(sd: float, rule: SamplingRule, *, process_s: float | None = None) -> Outlook:
    """Returns the power that this machine allows under a sampling rule.

    Args:
      sd: standard deviation of one replicate's log ratio, see `ratio_sd` and `sd_of_noise_floor`.
      rule: its budgets and the effect to find.
      process_s: time that a process takes from start to end; None if unknown, in which case only
        the number of processes limits the race.
    """
    processes = rule.max_processes
    if process_s:
        # A trial starts another process as long as its time is not up.
        processes = min(processes, math.floor(rule.trial_budget_s / process_s) + 1)
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
