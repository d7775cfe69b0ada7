"""Decides whether trials have enough processes, for one race or for many simulated ones at once."""

import math

import numpy as np
from numpy.typing import NDArray

from comparative_benchmark.analysis.stats.analysis import CLOSE, VERDICT_LEVEL, Array, latency_width
from comparative_benchmark.analysis.stats.planning import (
    CLOSE_PROCESSES,
    ratio_sd,
    reach,
    widest_sd_for_precision,
)
from comparative_benchmark.analysis.stats.sampling_rule import SamplingRule

PRECISION, NOISE, GO_ON = "precision", "noise", ""
# A ratio far from 1 need not be resolved to `effect`: a quarter of its distance is enough.
_SHARE_OF_DISTANCE = 0.25


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
    `results.comparing.family.Family`.

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
    found = reach(replicates) * sd <= np.maximum(least, _SHARE_OF_DISTANCE * distance)
    if competitors > 2:
        level = 1 - (1 - VERDICT_LEVEL) / math.comb(competitors, 2)
        found &= reach(replicates, level=level) * sd <= np.maximum(least, distance)
    if replicates >= min(CLOSE_PROCESSES, rule.max_processes):
        return np.asarray(found)
    return np.asarray(found & (distance > math.log(CLOSE)))
