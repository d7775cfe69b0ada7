"""Whether a trial has processes enough, from what those that it had have shown."""

import math
import statistics
from collections.abc import Sequence

import numpy as np

from comparative_benchmark.results.outcome import TrialOutcome
from comparative_benchmark.results.record import Block
from comparative_benchmark.stats.planning import (
    log_ratio_spread,
    processes_for_precision,
    processes_needed,
)
from comparative_benchmark.stats.sampling_rule import SamplingRule
from comparative_benchmark.stats.statistics import Rounds, latency_interval

# A ratio that is far from 1 need not be resolved to `effect`: a quarter of its distance will do.
_SHARE_OF_DISTANCE = 0.25


def why_enough(
    outcome: TrialOutcome,
    baseline: TrialOutcome | None,
    rule: SamplingRule,
    *,
    alone: bool = False,
) -> str | None:
    """Returns why a trial needs no further process; None if it does.

    The processes so far are the pilot. `precision`: the interval of the latency is as narrow as the
    goal. `noise`: it is not, and the spread between the processes is such that `max_processes`
    would not make it so. Either way the ratio to the baseline, if there is one, has processes
    enough to find `effect`.

    A trial that races `alone` is measured to be compared with another file, where nothing is paired
    and each process more makes the interval narrower: noise is then no reason to stop.

    Only the spread decides, not whether a verdict would come out well by now: to stop when it does
    would make wrong verdicts more frequent than their level says (Armitage, McPherson & Rowe 1969).
    The pilot's spread is itself an estimate, so this looks again after every process.
    """
    samples = [process.latencies_ms for process in outcome.processes]
    if len(samples) < rule.min_processes:
        return None
    try:
        if baseline is not None and not _has_power(outcome, baseline, rule):
            return None
        if latency_interval(samples, seed=rule.seed).relative_half_width <= rule.goal:
            return "precision"
    except ValueError:
        # Numbers that nothing can be told from are never enough.
        return None
    if alone:
        return None
    medians = [math.log(float(np.median(process))) for process in samples]
    needed = processes_for_precision(statistics.stdev(medians), rule.goal, rule.max_processes)
    return "noise" if needed is None else None


def pair_rounds(candidate: Sequence[Block], baseline: Sequence[Block]) -> Rounds:
    """Returns (candidate, baseline) median latencies of the rounds that both have a block of."""
    before = {block.round: float(np.median(block.latencies_ms)) for block in baseline}
    return [
        (float(np.median(block.latencies_ms)), before[block.round])
        for block in candidate
        if block.round in before
    ]


def _has_power(outcome: TrialOutcome, baseline: TrialOutcome, rule: SamplingRule) -> bool:
    paired = [
        pair_rounds(candidate.blocks, other.blocks)
        for candidate, other in zip(outcome.processes, baseline.processes, strict=False)
    ]
    between, within = log_ratio_spread(paired)
    ratios = [math.log(statistics.median(a / b for a, b in rounds)) for rounds in paired]
    distance = _SHARE_OF_DISTANCE * abs(statistics.median(ratios))
    effect = max(rule.effect, math.expm1(distance))
    rounds = min(len(rounds) for rounds in paired)
    return processes_needed(between, within, rounds, effect=effect) <= len(paired)
