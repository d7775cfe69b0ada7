"""The rule until November 2026, as a baseline: a 98 % bootstrap that ignored early stopping.

It resamples process medians and widens the quantiles to Student's t, as the former module
`resampling` did. The inner level of that module, blocks of samples within a process, is omitted,
because the interval was scaled to the spread of the medians.
"""

import math
from statistics import NormalDist

import numpy as np
from _simulated_noise import Array
from _simulated_races import VERDICT, Counts, Judged, Medians
from numpy.typing import NDArray

from comparative_benchmark.analysis.stats.analysis import student_quantile
from comparative_benchmark.analysis.stats.planning import SamplingRule, ratio_sd

_RESAMPLES = 600


def former_stop(
    logs: Array, ratios: Array, variances: Array, rule: SamplingRule
) -> NDArray[np.bool_]:
    """Returns a mask of the races that stop."""
    count = logs.shape[1]
    quarter = 0.25 * np.abs(np.median(ratios, axis=1))
    effect = np.maximum(math.log1p(rule.effect), quarter)
    both = student_quantile((1 + VERDICT) / 2, count - 1) + student_quantile(0.9, count - 1)
    has_power = both * ratio_sd(ratios, variances) / math.sqrt(count) <= effect
    best = student_quantile(0.975, rule.max_processes - 1) / math.sqrt(rule.max_processes)
    enough = best * np.std(logs, axis=1, ddof=1) > rule.goal
    asked = has_power & ~enough
    low, high = _limits(logs[asked], 0.95)
    enough[asked] = (high - low) / 2 <= rule.goal
    return np.asarray(has_power & enough)


def former_ratio(found: Medians, counts: Counts) -> Judged:
    """Returns the ratios; each half-width is the distance to the limit that is nearer to 1."""
    estimates, widths = np.zeros(len(counts)), np.zeros(len(counts))
    for count in np.unique(counts):
        chosen = counts == count
        values = found.ratios[chosen, :count]
        estimates[chosen] = values.mean(axis=1)
        low, high = _limits(values, VERDICT)
        widths[chosen] = np.where(estimates[chosen] > 0, -low, high)
    return Judged(estimates=estimates, widths=widths, processes=counts)


def _limits(values: Array, level: float) -> tuple[Array, Array]:
    """Returns the widths of the interval below and above the mean."""
    pairs, count = values.shape
    random = np.random.default_rng(count)
    weights = random.multinomial(count, np.full(count, 1 / count), size=_RESAMPLES) / count
    means = (values - values.mean(axis=1, keepdims=True)) @ weights.T
    spread = means.std(axis=1, keepdims=True)
    wanted = values.std(axis=1, ddof=1, keepdims=True) / math.sqrt(count)
    tail = (1 - level) / 2
    widen = student_quantile(1 - tail, count - 1) / NormalDist().inv_cdf(1 - tail)
    low, high = np.quantile(means, [tail, 1 - tail], axis=1) if pairs else np.zeros((2, 0))
    scale = (widen * wanted / spread)[:, 0]
    return scale * low, scale * high
