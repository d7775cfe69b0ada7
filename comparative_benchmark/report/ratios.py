"""Latencies with their intervals, and each case against the named competitor of its workload."""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence
from itertools import chain

import attrs

from comparative_benchmark.report.inputs import ReportCase
from comparative_benchmark.results.case import Case
from comparative_benchmark.results.compare import DEFAULT_BASELINE, against_baseline
from comparative_benchmark.results.compare_samples import samples_of
from comparative_benchmark.results.comparison import Comparison
from comparative_benchmark.results.processes import map_jobs, process_count
from comparative_benchmark.results.record import Status
from comparative_benchmark.stats.analysis import (
    NOISE_THRESHOLD,
    Interval,
    SampleError,
    latency_interval,
)

# Starting processes takes about as long as judging so many cases.
_WORTH_PROCESSES = 300


@attrs.frozen(kw_only=True)
class Judged:
    """A case with what its samples say.

    Attributes:
      interval: of the latency in ms, 95 %; of a compile-only result, of the cold compile time;
        None where there are no samples.
      comparison: with the named competitor, which is candidate / baseline; None for itself.
    """

    case: ReportCase
    interval: Interval | None
    comparison: Comparison | None


def choose_baseline(cases: Iterable[Case]) -> str:
    """Returns the competitor to compare with where none is named."""
    counts: Counter[str] = Counter()
    for case in cases:
        # A script is compared with its own past alone.
        counts[case.competitor] += case.result.ranked and not case.metrics.throughput
    if DEFAULT_BASELINE in counts:
        return DEFAULT_BASELINE
    return max(sorted(counts), key=lambda name: counts[name])


def judge(
    cases: Sequence[ReportCase],
    baseline: str,
    *,
    threshold: float = NOISE_THRESHOLD,
    processes: int | None = None,
) -> list[Judged]:
    """Returns every case with its interval, against the baseline competitor of its workload.

    As `compare_to_baseline`, but results of two machines are never set against each other.

    Args:
      cases: of any workloads, devices and machines.
      baseline: competitor to compare with.
      threshold: differences of latencies below it are noise.
      processes: that share the work; by default one for each CPU where there is much of it.
    """
    groups: defaultdict[Hashable, list[ReportCase]] = defaultdict(list)
    for case in cases:
        groups[case.workload, case.contest].append(case)
    jobs = [(group, baseline, threshold) for group in groups.values()]
    processes = processes or process_count(len(cases), least=_WORTH_PROCESSES)
    judged = chain.from_iterable(map_jobs(_judge_group, jobs, processes=processes))
    found = {
        id(case): Judged(case=case, interval=interval, comparison=comparison)
        for case, (interval, comparison) in zip(chain(*groups.values()), judged, strict=True)
    }
    return [found[id(case)] for case in cases]


def _judge_group(
    job: tuple[list[ReportCase], str, float],
) -> list[tuple[Interval | None, Comparison | None]]:
    cases, baseline, threshold = job
    comparisons = against_baseline(cases, baseline, threshold=threshold)
    return [
        ((comparison and comparison.candidate_ms) or _interval(case), comparison)
        for case, comparison in zip(cases, comparisons, strict=True)
    ]


def _interval(case: Case) -> Interval | None:
    if case.status is not Status.OK:
        return None
    try:
        return latency_interval(samples_of(case.metrics))
    except SampleError:
        return None
