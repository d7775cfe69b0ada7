"""Judges race results: is the candidate slower, bigger or wrong?

Slower has the same meaning as in `cbs compare`. The total change is known from the two ends; half
of it, on a log scale, is the threshold. A candidate is bad if its ratio exceeds the threshold and
the whole confidence interval is above 1, and good if the interval ends below the threshold.
"""

import enum
import math
from collections.abc import Iterable, Sequence

from comparative_benchmark.analysis.stats.analysis import (
    MIN_PROCESSES,
    NOISE_THRESHOLD,
    Interval,
    SampleError,
    Verdict,
    unpaired_ratio,
    verdict,
)
from comparative_benchmark.results.case import Case
from comparative_benchmark.results.comparing.compare import compare_to_baseline
from comparative_benchmark.results.comparing.comparison import COMPILE_THRESHOLD, quotient
from comparative_benchmark.results.record import Result, Status
from comparative_benchmark.studies.bisection.search import Answer, CaseAnswer, Ratio

# Peak resident memory varies this much with pages, arenas and threads.
_MEMORY_THRESHOLD = 0.02
_RUNS = (Status.OK, Status.UNSTEADY)


class Metric(enum.Enum):
    """The property to bisect for."""

    LATENCY = "latency"
    COMPILE = "compile"
    MEMORY = "memory"
    OUTPUT = "output"
    FAILURE = "failure"

    @property
    def measured(self) -> bool:
        """Whether it is a ratio and not a status."""
        return self not in (Metric.OUTPUT, Metric.FAILURE)

    @property
    def noise(self) -> float:
        """Smaller relative changes are ignored."""
        if self is Metric.COMPILE:
            return COMPILE_THRESHOLD
        return _MEMORY_THRESHOLD if self is Metric.MEMORY else NOISE_THRESHOLD

    @property
    def word(self) -> str:
        """The word for a bad candidate, e.g. `slower`."""
        return _WORDS[self]


_WORDS = {
    Metric.LATENCY: "slower",
    Metric.COMPILE: "slower to compile",
    Metric.MEMORY: "bigger",
    Metric.OUTPUT: "wrong",
    Metric.FAILURE: "broken",
}


def judge(
    good: Result, candidate: Result, metric: Metric, threshold: float | None = None
) -> CaseAnswer:
    """Judges a candidate's result against the good one from the same race.

    Args:
      good: result of a trial in the good environment.
      candidate: result for the same case and competitor in the candidate's environment.
      metric: the property to compare.
      threshold: relative change below which a candidate is good; None for the metric's noise.
    """
    name = name_of(candidate)
    if good.status not in _RUNS or (metric.measured and good.status is not Status.OK):
        reason = f"good side: {_ending(good)}"
        return CaseAnswer(case=name, answer=Answer.SKIPPED, reason=reason)
    if not metric.measured:
        return _by_status(name, candidate, metric)
    if candidate.status is not Status.OK:
        hint = "to bisect this, use --metric output or failure"
        reason = f"nothing was measured: {_ending(candidate)} ({hint})"
        return CaseAnswer(case=name, answer=Answer.SKIPPED, reason=reason)
    limit = metric.noise if threshold is None else threshold
    if metric is Metric.MEMORY:
        return _by_memory(name, good, candidate, limit)
    cases = [Case(result=result) for result in (good, candidate)]
    [item] = compare_to_baseline(cases, good.definition.competitor, threshold=limit)
    return by_ratio(name, item.ratio, item.verdict, item.reason, limit)


def name_of(result: Result) -> str:
    """Returns the name of the case, backend and compiler, without the environment."""
    definition = result.definition
    return f"{definition.benchmark_name} {definition.backend}:{definition.compiler}"


def sought_threshold(bad: Iterable[CaseAnswer], noise: float) -> float | None:
    """Returns half of the smallest change at the bad end, on a log scale; None for a status."""
    ratios = [item.ratio.estimate for item in bad if item.ratio]
    return max(noise, math.sqrt(min(ratios)) - 1) if ratios else None


def _by_status(name: str, candidate: Result, metric: Metric) -> CaseAnswer:
    status = candidate.status
    if metric is Metric.OUTPUT:
        bad = status is Status.WRONG_OUTPUT
    else:
        bad = status is not Status.UNSUPPORTED
    worse = Answer.BAD if bad else Answer.SKIPPED
    answer = Answer.GOOD if status in _RUNS else worse
    return CaseAnswer(case=name, answer=answer, reason=_ending(candidate))


def _by_memory(name: str, good: Result, candidate: Result, threshold: float) -> CaseAnswer:
    after, before = candidate.measured, good.measured
    # A device reports a single, deterministic peak.
    on_device = quotient(after.device_memory_peak_mb, before.device_memory_peak_mb)
    if on_device is not None:
        ratio = Ratio(estimate=on_device, low=on_device, high=on_device)
        answer = Answer.BAD if on_device > 1 + threshold else Answer.GOOD
        return CaseAnswer(case=name, answer=answer, reason="peak device memory", ratio=ratio)
    peaks = [
        [[process.host_memory_peak_mb] for process in metrics.processes or ()]
        for metrics in (after, before)
    ]
    try:
        interval = unpaired_ratio(_numbers(peaks[0]), _numbers(peaks[1])).interval()
    except SampleError as error:
        return CaseAnswer(case=name, answer=Answer.SKIPPED, reason=f"peak memory: {error}")
    outcome, reason = verdict(interval, threshold=threshold)
    return by_ratio(name, interval, outcome, f"peak host memory: {reason}", threshold)


def _numbers(peaks: Sequence[Sequence[float | None]]) -> list[list[float]]:
    """Returns the peaks; raises `SampleError` if a process did not report any."""
    known = [[peak for peak in process if peak is not None] for process in peaks]
    if not all(known):
        raise SampleError("not reported by every process")
    return known


def by_ratio(
    name: str, interval: Interval | None, outcome: Verdict, reason: str, threshold: float
) -> CaseAnswer:
    """Converts an interval and a verdict to an answer, for a quantity that may have increased."""
    ratio = None
    if interval is not None:
        ratio = Ratio(estimate=interval.estimate, low=interval.low, high=interval.high)
    answer = {
        Verdict.SLOWER: Answer.BAD,
        Verdict.SAME: Answer.GOOD,
        Verdict.FASTER: Answer.GOOD,
        Verdict.UNCLEAR: Answer.UNCLEAR,
        Verdict.INCOMPARABLE: Answer.SKIPPED,
    }[outcome]
    if answer is Answer.UNCLEAR and interval is not None and _rules_out(interval, threshold):
        answer = Answer.GOOD
        reason = f"the whole interval is below the threshold of {threshold:.1%}"
    return CaseAnswer(case=name, answer=answer, reason=reason, ratio=ratio)


def _rules_out(interval: Interval, threshold: float) -> bool:
    """Returns whether the interval excludes a change as large as the threshold."""
    return interval.processes >= MIN_PROCESSES and interval.high < 1 + threshold


def _ending(result: Result) -> str:
    return Case(result=result).why
