"""Latencies with their intervals, and each result against the named competitor of its workload."""

from collections import defaultdict
from collections.abc import Hashable, Sequence

import attrs

from comparative_benchmark.report.inputs import Result
from comparative_benchmark.results.compare import DEFAULT_BASELINE
from comparative_benchmark.results.compare_cases import Case
from comparative_benchmark.results.compare_pair import compared, without_ratio
from comparative_benchmark.results.compare_samples import (
    COLD_COMPILE,
    compile_samples,
    listed,
    process_samples,
)
from comparative_benchmark.results.comparison import Comparison, Fate
from comparative_benchmark.results.processes import answers, worth_it
from comparative_benchmark.stats.analysis import (
    NOISE_THRESHOLD,
    Interval,
    SampleError,
    latency_interval,
)

# Starting processes takes about as long as judging so many cases.
_WORTH_PROCESSES = 300
# What a comparison looks at; the rest need not travel to another process.
_COMPARED = (
    *("processes", "latencies_ms", "race", "compile", "stop_reason"),
    *("compile_time_ms", "device_memory_peak_mb", "host_memory_peak_mb"),
)
_OF_A_BLOCK = ("round", "latencies_ms", "contended")


@attrs.frozen(kw_only=True)
class Judged:
    """A result with what its samples say.

    Attributes:
      interval: of the latency in ms, 95 %; of a compile-only result, of the cold compile time;
        None where there are no samples.
      comparison: with the named competitor, which is candidate / baseline; None for itself.
    """

    result: Result
    interval: Interval | None
    comparison: Comparison | None


def choose_baseline(results: Sequence[Result]) -> str:
    """Returns the competitor to compare with where none is named."""
    counts: defaultdict[str, int] = defaultdict(int)
    for result in results:
        counts[result.case.competitor] += result.case.status == "ok"
    if DEFAULT_BASELINE in counts:
        return DEFAULT_BASELINE
    return max(sorted(counts), key=lambda name: counts[name])


def judge(
    results: Sequence[Result],
    baseline: str,
    *,
    threshold: float = NOISE_THRESHOLD,
    processes: int | None = None,
) -> list[Judged]:
    """Returns every result with its interval, against the baseline competitor of its workload.

    As `compare_to_baseline`: a workload that the baseline ran in several frameworks is compared
    within the same framework, or with the only other one. Unlike there the machine is known, and
    results of two machines are never set against each other.

    Args:
      results: of any workloads, devices and machines.
      baseline: competitor to compare with.
      threshold: differences of latencies below it are noise.
      processes: that share the work; by default one for each CPU where there is much of it.
    """
    groups: defaultdict[Hashable, list[int]] = defaultdict(list)
    for position, result in enumerate(results):
        groups[result.case.workload, *result.contest].append(position)
    jobs = [
        ([_slim(results[p].case) for p in group], baseline, threshold) for group in groups.values()
    ]
    processes = processes or worth_it(len(results), least=_WORTH_PROCESSES)
    found: dict[int, Judged] = {}
    judged = answers(_judge_group, jobs, processes=processes)
    for group, answer in zip(groups.values(), judged, strict=True):
        for position, (interval, comparison) in zip(group, answer, strict=True):
            found[position] = Judged(
                result=results[position], interval=interval, comparison=comparison
            )
    return [found[position] for position in range(len(results))]


def _slim(case: Case) -> Case:
    """Returns a case without what no comparison looks at; what has another shape stays."""
    metrics = {name: case.metrics[name] for name in _COMPARED if name in case.metrics}
    processes = [listed(process, "blocks") for process in listed(metrics, "processes")]
    if processes and all(isinstance(block, dict) for blocks in processes for block in blocks):
        metrics["processes"] = [
            {"blocks": [{k: block[k] for k in _OF_A_BLOCK if k in block} for block in blocks]}
            for blocks in processes
        ]
    return attrs.evolve(case, metrics=metrics)


def _judge_group(
    job: tuple[list[Case], str, float],
) -> list[tuple[Interval | None, Comparison | None]]:
    cases, baseline, threshold = job
    bases = [case for case in cases if case.competitor == baseline]
    found: list[tuple[Interval | None, Comparison | None]] = []
    for case in cases:
        comparison = (
            None if case.competitor == baseline else _against(case, bases, baseline, threshold)
        )
        interval = comparison.candidate_ms if comparison else None
        found.append((interval or _interval(case), comparison))
    return found


def _against(case: Case, bases: Sequence[Case], baseline: str, threshold: float) -> Comparison:
    same = [base for base in bases if base.framework == case.framework] or bases
    if len(same) != 1:
        reason = f"no result of {baseline}" if not same else f"several {baseline} results"
        # What is wrong or not supported is so without a baseline, too.
        fates = {"wrong_output": Fate.WRONG, "unsupported": Fate.UNSUPPORTED}
        if case.status != "ok":
            reason = case.why
        return without_ratio(case, fates.get(case.status, Fate.MISSING), reason)
    return compared(same[0], case, threshold=threshold)


def samples_of(case: Case) -> list[list[float]]:
    """Returns the samples of each process in ms, of the quantity that the case measured.

    Raises:
      SampleError: there are none, or they have another shape.
    """
    read = compile_samples if case.quantity == COLD_COMPILE else process_samples
    return read(case.metrics)


def _interval(case: Case) -> Interval | None:
    if case.status != "ok":
        return None
    try:
        return latency_interval(samples_of(case))
    except SampleError:
        return None
