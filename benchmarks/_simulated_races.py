"""Stops and judges many simulated races at once, by the rules of `cbs run`."""

import math
from collections.abc import Callable

import attrs
import numpy as np
from _simulated_noise import PROCESSES, Array, Sides
from numpy.typing import NDArray

from comparative_benchmark.analysis.stats.analysis import (
    CLOSE,
    CLOSE_VERDICT_PROCESSES,
    NOISE_THRESHOLD,
    latency_width,
    ratio_quantile,
)
from comparative_benchmark.analysis.stats.planning import (
    GO_ON,
    SamplingRule,
    stop_reasons,
    variance_of_median,
)

Counts = NDArray[np.int64]
# Arguments: latencies, ratios and their variances so far. Result: mask of the races that may stop.
Stop = Callable[[Array, Array, Array], NDArray[np.bool_]]

VERDICT = 0.98


@attrs.frozen(kw_only=True)
class Judged:
    """Results of races: log ratios, half-widths of their intervals, and numbers of processes."""

    estimates: Array
    widths: Array
    processes: Counts

    def covers(self, truth: float = 0.0) -> int:
        """Returns how many intervals contain the truth."""
        return int((np.abs(self.estimates - truth) <= self.widths).sum())

    def slower(self) -> int:
        """Returns how many verdicts are `slower`."""
        return int(self.is_slower().sum())

    def decided(self) -> int:
        """Returns how many verdicts are `slower` or `faster`."""
        mirrored = attrs.evolve(self, estimates=-self.estimates)
        return self.slower() + mirrored.slower()

    def is_slower(self) -> NDArray[np.bool_]:
        """Returns a mask of the verdicts `slower`, by the rule of `analysis.verdict`."""
        beyond = self.estimates > math.log1p(NOISE_THRESHOLD)
        beyond &= (self.processes >= CLOSE_VERDICT_PROCESSES) | (self.estimates > math.log(CLOSE))
        return np.asarray((self.estimates > self.widths) & beyond)


@attrs.frozen(kw_only=True)
class Medians:
    """The inputs of the stopping rule, float64[pairs, processes] each.

    Attributes:
      candidate, baseline: logarithms of process medians.
      ratios, variances: figures of replicates, see `planning.replicate_variances`.
    """

    candidate: Array
    baseline: Array
    ratios: Array
    variances: Array


def medians_of(sides: Sides) -> Medians:
    """Returns the medians over rounds."""
    candidate, baseline = sides
    differences = candidate - baseline
    return Medians(
        candidate=np.median(candidate, axis=-1),
        baseline=np.median(baseline, axis=-1),
        ratios=np.median(differences, axis=-1),
        variances=variance_of_median(differences),
    )


def why_enough_rule(rule: SamplingRule, competitors: int = 2) -> Stop:
    """Returns the decision that `why_enough` makes for a candidate."""
    return lambda logs, ratios, variances: (
        stop_reasons(logs, ratios, variances, rule, competitors=competitors) != GO_ON
    )


def alone(rule: SamplingRule) -> Stop:
    """Returns the decision that `why_enough` makes for a trial without a competitor."""
    return lambda logs, *_: stop_reasons(logs, None, None, rule, competitors=1) != GO_ON


def stopped_after(found: Medians, stop: Stop, *, fewest: int, most: int) -> Counts:
    """Returns the number of processes that each race runs."""
    counts = np.full(len(found.ratios), most)
    going = np.arange(len(counts))
    for count in range(fewest, most):
        some = (found.candidate, found.ratios, found.variances)
        stops = stop(*(values[going, :count] for values in some))
        counts[going[stops]] = count
        going = going[~stops]
    return counts


def by_count(values: Array, counts: Counts) -> tuple[Array, Array]:
    """Returns mean and variance of the first `counts` values of each row."""
    used = np.arange(values.shape[1]) < counts[:, None]
    means = (values * used).sum(axis=1) / counts
    squares = ((values - means[:, None]) ** 2 * used).sum(axis=1)
    return means, squares / (counts - 1)


def paired(found: Medians, counts: Counts, *, level: float = VERDICT) -> Judged:
    """Returns the ratios of replicates, as `paired_ratio` does."""
    means, variances = by_count(found.ratios, counts)
    quantiles = np.array([ratio_quantile(level, max(count - 1, 1)) for count in range(64)])
    return Judged(
        estimates=means, widths=quantiles[counts] * np.sqrt(variances / counts), processes=counts
    )


def unpaired(found: Medians, counts: Counts, others: Counts) -> Judged:
    """Returns the ratios of two independent groups, as `unpaired_ratio` does."""
    (new, new_variance), (old, old_variance) = (
        by_count(found.candidate, counts),
        by_count(found.baseline, others),
    )
    parts = (new_variance / counts, old_variance / others)
    total = parts[0] + parts[1]
    degrees = total**2 / (parts[0] ** 2 / (counts - 1) + parts[1] ** 2 / (others - 1))
    # Welch's degrees of freedom are real numbers, so the quantile is interpolated in 1 / df.
    known = np.geomspace(1, 2 * PROCESSES, 400)
    table = np.array([ratio_quantile(VERDICT, float(value)) for value in known])
    quantiles = np.interp(degrees, known, table)
    return Judged(
        estimates=new - old, widths=quantiles * np.sqrt(total), processes=np.minimum(counts, others)
    )


def latencies_covered(found: Medians, counts: Counts) -> int:
    """Returns how many 95 % intervals of the candidate's latency contain its true value."""
    held = 0
    for count in np.unique(counts):
        logs = found.candidate[counts == count, :count]
        held += int((np.abs(logs.mean(axis=1)) <= latency_width(logs)).sum())
    return held
