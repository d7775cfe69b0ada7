"""How many processes a verdict takes, from what a pilot measured."""

import math
from collections.abc import Sequence

import numpy as np

from comparative_benchmark.stats.resampling import SampleError, student_quantile
from comparative_benchmark.stats.statistics import (
    LATENCY_LEVEL,
    MIN_PROCESSES,
    VERDICT_LEVEL,
    Rounds,
)

# Variance of a median over that of a mean, normal samples.
_MEDIAN_VARIANCE = math.pi / 2
# A standard deviation over a median absolute deviation, normal samples.
_SD_PER_MAD = 1.4826


def log_ratio_spread(paired: Sequence[Rounds]) -> tuple[float, float]:
    """Returns what a pilot tells: sd of log ratios from process to process, and within a process.

    Variance components of a one-way layout (Searle et al., 1992), the inner one from median
    absolute deviations so that spikes do not count. From 3 pilot processes the outer one is known
    to a factor of 2 or 3 at best.

    Raises:
      SampleError: fewer than two replicates, or fewer than two rounds in one.
    """
    if len(paired) < 2 or any(len(rounds) < 2 for rounds in paired):
        raise SampleError("a pilot needs two replicates of two rounds")
    logs = [np.array([math.log(a / b) for a, b in rounds]) for rounds in paired]
    medians = np.array([np.median(values) for values in logs])
    inner = [
        _SD_PER_MAD * float(np.median(np.abs(values - median)))
        for values, median in zip(logs, medians, strict=True)
    ]
    of_medians = [_MEDIAN_VARIANCE * sd * sd / len(v) for sd, v in zip(inner, logs, strict=True)]
    outer = max(0.0, float(np.var(medians, ddof=1)) - float(np.mean(of_medians)))
    return math.sqrt(outer), math.sqrt(float(np.mean(np.square(inner))))


def processes_needed(
    pilot_process_log_sd: float,
    pilot_within_sd: float,
    rounds: int,
    *,
    effect: float = 0.03,
    power: float = 0.9,
    alpha: float = 1 - VERDICT_LEVEL,
) -> int:
    """Returns how many replicates find a relative difference of `effect` with probability `power`.

    The smallest K, from 3 on, with (t[1-alpha/2] + t[power]) * sd / sqrt(K) <= log(1 + effect), t
    of K - 1 degrees of freedom (Cohen, 1988), where sd is that of one replicate's median over
    `rounds`. More rounds lower only the inner part of it. A pilot that underestimates the sd makes
    this too small.
    """
    variance = pilot_process_log_sd**2 + _MEDIAN_VARIANCE * pilot_within_sd**2 / rounds
    if not math.isfinite(variance) or effect <= 0:
        raise ValueError("standard deviations must be finite and the effect positive")
    needed = MIN_PROCESSES
    while True:
        degrees = needed - 1
        both = student_quantile(1 - alpha / 2, degrees) + student_quantile(power, degrees)
        # Where t is all but normal the answer only depends on the square root.
        if both * math.sqrt(variance / needed) <= math.log1p(effect):
            return needed
        needed += max(1, needed // 50)


def processes_for_precision(process_log_sd: float, goal: float, most: int) -> int | None:
    """Returns how many processes bring a latency's 95 % interval to the half-width `goal`.

    The smallest K, from 3 to `most`, with t[0.975] * sd / sqrt(K) <= goal, t of K - 1 degrees of
    freedom; None if there is none.
    """
    for needed in range(MIN_PROCESSES, most + 1):
        quantile = student_quantile((1 + LATENCY_LEVEL) / 2, needed - 1)
        if quantile * process_log_sd / math.sqrt(needed) <= goal:
            return needed
    return None
