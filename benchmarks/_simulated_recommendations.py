"""Simulated races of several equal programs, and recommendations of the best of them.

Races are stopped and judged by the rules of `cbs run`: candidates race against the first program,
and `results.comparing.compare.Family` gives the verdicts.
"""

import itertools

import attrs
import numpy as np
from _simulated_noise import Array, Noise
from _simulated_races import (
    VERDICT,
    Counts,
    Judged,
    Medians,
    medians_of,
    paired,
    stopped_after,
    why_enough_rule,
)
from numpy.typing import NDArray
from scipy import stats

from comparative_benchmark.analysis.stats.analysis import SHARE_OF_ERROR, holm
from comparative_benchmark.analysis.stats.planning import SamplingRule

RULE = SamplingRule()


@attrs.frozen(kw_only=True)
class Races:
    """Outcomes of races.

    Attributes:
      processes: number of processes of each program, int64[programs, races].
      decided, single: whether a pair is faster or slower if all pairs are judged together, and if
        it is judged by itself, bool[programs, programs, races].
      best: the program with the lowest latency, int64[races].
    """

    processes: Counts
    decided: NDArray[np.bool_]
    single: NDArray[np.bool_]
    best: NDArray[np.int64]


@attrs.frozen(kw_only=True)
class Recommended:
    """Number of races of equal programs with a false conclusion.

    Attributes:
      races: all races.
      false: races whose recommendation called the best program faster than another.
      false_pairs: races in which any pair had a verdict.
      false_of_single_pairs: the same as `false`, if each pair was judged by itself.
    """

    races: int
    false: int
    false_pairs: int
    false_of_single_pairs: int


def recommended(noise: Noise, races: int, programs: int, *, seed: int) -> Recommended:
    """Counts false recommendations in races of equal programs."""
    random = np.random.default_rng(seed)
    counts = np.zeros(3, dtype=np.int64)
    step = max(1, 20_000 // programs)
    for start in range(0, races, step):
        found = judged(noise.races(random, min(step, races - start), programs))
        row = np.arange(len(found.best))
        sentences = [of[found.best, :, row].any(axis=1) for of in (found.decided, found.single)]
        any_pair = found.decided.any(axis=(0, 1))
        counts += [sentences[0].sum(), any_pair.sum(), sentences[1].sum()]
    false, pairs, single = counts.tolist()
    return Recommended(races=races, false=false, false_pairs=pairs, false_of_single_pairs=single)


def judged(logs: Array) -> Races:
    """Returns the outcomes of races, float64[programs, races, processes, rounds]."""
    programs, races = logs.shape[:2]
    stop = why_enough_rule(RULE, programs)
    counts = np.empty((programs, races), dtype=np.int64)
    for number in range(1, programs):
        counts[number] = stopped_after(
            medians_of((logs[number], logs[0])),
            stop,
            fewest=RULE.min_processes,
            most=RULE.max_processes,
        )
    # The baseline runs until the last candidate has stopped, because ratios are paired with it.
    counts[0] = counts[1:].max(axis=0)
    pairs = list(itertools.combinations(range(programs), 2))
    found = [_pair(logs, counts, *pair) for pair in pairs]
    p_values = np.stack([_p_values(item) for item in found], axis=1).tolist()
    rejected = np.array([holm(row, 1 - VERDICT) for row in p_values])
    decided = np.zeros((2, programs, programs, races), dtype=np.bool_)
    for place, (first, second) in enumerate(pairs):
        mirrored = attrs.evolve(found[place], estimates=-found[place].estimates)
        alone = found[place].is_slower() | mirrored.is_slower()
        for one, other in ((first, second), (second, first)):
            decided[:, one, other] = alone & rejected[:, place], alone
    return Races(
        processes=counts, decided=decided[0], single=decided[1], best=_lowest(logs, counts)
    )


def _pair(logs: Array, counts: Counts, first: int, second: int) -> Judged:
    both: Medians = medians_of((logs[second], logs[first]))
    return paired(both, np.minimum(counts[first], counts[second]))


def _p_values(found: Judged) -> Array:
    """Returns the p-values of `LogRatio.p_value`."""
    degrees = found.processes - 1
    quantiles = stats.t.isf(SHARE_OF_ERROR * (1 - VERDICT) / 2, degrees)
    distance = np.abs(found.estimates) / (found.widths / quantiles)
    values: Array = np.minimum(1.0, 2 * stats.t.sf(distance, degrees) / SHARE_OF_ERROR)
    return values


def _lowest(logs: Array, counts: Counts) -> NDArray[np.int64]:
    """Returns the program whose process medians have the lowest mean."""
    medians = np.exp(np.median(logs, axis=-1))
    used = np.arange(medians.shape[-1]) < counts[..., None]
    means = np.where(used, medians, 0.0).sum(axis=-1) / counts
    return np.asarray(means.argmin(axis=0))
