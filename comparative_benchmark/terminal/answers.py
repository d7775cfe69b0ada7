"""What a run of one workload came to, in a few sentences: which competitor to take, and why."""

import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path

from comparative_benchmark.results.case import Case
from comparative_benchmark.results.comparison import Comparison
from comparative_benchmark.results.family import Family
from comparative_benchmark.results.record import AGREED, Status
from comparative_benchmark.runs.resuming import typed, with_more_processes
from comparative_benchmark.stats.analysis import (
    DECISIVE_PROCESSES,
    MIN_PROCESSES,
    NOISE_THRESHOLD,
    Verdict,
    latency_interval,
)
from comparative_benchmark.terminal import not_installed
from comparative_benchmark.terminal.compare_views import latency_text, ratio_text
from comparative_benchmark.terminal.tables import digits

_LONGEST_REASON = 160


def answers(
    cases: Sequence[Case],
    *,
    absent: str = "",
    command: Sequence[str] = (),
    output: Path | None = None,
) -> list[str]:
    """Returns sentences on the competitors of one workload; empty where there is no question.

    The fastest is the one with the lowest latency among those whose output is right and that
    compute in the workload's own type. It is called faster than another one only if their verdict,
    which holds among all pairs (`Family`), is `faster`.

    Args:
      cases: results of a run; where they are of several workloads, or of compile times, nothing is
        said.
      absent: line that names backends that are not installed.
      command: what the user typed, to be repeated.
      output: results file of the run.
    """
    if len(cases) < 2 or len({(case.workload, case.device) for case in cases}) != 1:
        return []
    if any(case.metrics.compile_only or case.metrics.throughput for case in cases):
        return []
    installed, lacking = not_installed.split(cases)
    good = [case for case in installed if case.status is Status.OK]
    able = [case for case in good if case.result.ranked]
    ranked = sorted(
        filter(_is_equal, able),
        key=lambda case: (case.metrics.judged_on_integers, _latency_ms(case)),
    )
    nothing = "Nothing that can be ranked" if good else "Nothing"
    lines = [f"{nothing} ran with a right output."]
    if ranked:
        family = Family(cases, threshold=NOISE_THRESHOLD)
        lines = [_choice(ranked, family), *_others(ranked, family)]
        lacking_processes = any(family.lacks_processes(ranked[0], case) for case in ranked[1:])
        if lacking_processes and command and output:
            again = with_more_processes(command, output, DECISIVE_PROCESSES)
            lines.append(f"More processes may decide that; this adds them: {again}.")
    if apart := [case for case in able if not _is_equal(case)]:
        lines.append(f"Not ranked, since in fewer bits: {_names(apart)}.")
    if ranked:  # else all of them, and they are listed above
        failed = [case for case in installed if case not in good]
        lines += [f"{_name(case)}: {_shortened(case.why)}." for case in failed]
    lines += [f"To try more: {line}." for line in filter(None, (lacking, absent))]
    return lines + ([f"Again: {typed(command)}"] if command else [])


def _choice(ranked: Sequence[Case], family: Family) -> str:
    """Returns what to take, how sure that is, and what it costs."""
    best, *rest = ranked
    claim = "the lowest latency of those whose output" if rest else "the only one whose output"
    agreed = best.result.word == AGREED
    lack = "the truth is in doubt" if best.metrics.truth_in_doubt else "there is no float64 proof"
    proof = f"agrees with a plain run ({lack})" if agreed else "is right"
    if best.metrics.judged_on_integers:
        proof += " in its integers, which prove no precision"
    costs = [text for text in (_compile_text(best), _memory_text(best)) if text]
    cost = f"; it {' and '.join(costs)}" if costs else ""
    is_disturbed = any(family.comparison(best, case).disturbed for case in rest)
    start = "No winner, since others used the CPUs; first is" if is_disturbed else "Take"
    return f"{start} {_name(best)}: {_latency_text(best)}, {claim} {proof}{cost}."


def _others(ranked: Sequence[Case], family: Family) -> list[str]:
    """Returns how far the others are behind, and of which that is not certain."""
    best, *rest = ranked
    behind, open_ones, fewest = [], [], MIN_PROCESSES
    for case in rest:
        found = family.comparison(best, case)
        text = f"{_name(case)}{_speedup_text(found)}"
        if found.verdict is Verdict.SLOWER:
            behind.append(text)
        else:
            open_ones.append(text)
            fewest = min(fewest, *map(_processes, (best, case)))
    lines = [f"It is clearly faster than {', '.join(behind)}."] if behind else []
    if open_ones:
        hint = "; leave -w and -iter out to race them" if fewest < MIN_PROCESSES else ""
        lines.append(f"It is not clearly faster than {', '.join(open_ones)}{hint}.")
    levels = {case.result.level for case in ranked}
    if len(levels) > 1 and best.result.level == "compiler_level":
        lines.append("It runs an exported program; some of the others have a framework around it.")
    return lines


def _is_equal(case: Case) -> bool:
    definition = case.result.definition
    return definition.precision in (None, definition.workload.data_type or definition.data_type)


def _latency_ms(case: Case) -> float:
    processes = _samples(case)
    if len(processes) > 1:
        return latency_interval(processes).estimate
    return case.metrics.median_ms or float("inf")


def _latency_text(case: Case) -> str:
    processes = _samples(case)
    if len(processes) < 2:
        return f"{digits(case.metrics.median_ms or 0.0)} ms in one process"
    interval = latency_interval(processes)
    return f"{latency_text(interval)} ms ({interval.scope})"


def _samples(case: Case) -> list[list[float]]:
    return [process.latencies_ms for process in case.metrics.processes or ()]


def _processes(case: Case) -> int:
    return len(_samples(case))


def _compile_text(case: Case) -> str:
    cold, warm = case.metrics.compile_time_ms, case.metrics.warm_compile_time_ms
    if cold is None:
        return ""
    again = f", {statistics.median(warm) / 1e3:.2g} s with warm caches" if warm else ""
    return f"compiles in {cold / 1e3:.2g} s{again}"


def _memory_text(case: Case) -> str:
    peak = case.metrics.host_memory_peak_mb
    return "" if peak is None else f"takes {peak * 1e6 / 2**20:.0f} MiB at most"


def _speedup_text(found: Comparison) -> str:
    """Returns how much faster the baseline is: the ratio of candidate to baseline."""
    return f" ({ratio_text(found.ratio)} times as fast)" if found.ratio else ""


def _name(case: Case) -> str:
    return f"{case.competitor} ({case.framework})"


def _names(cases: Iterable[Case]) -> str:
    return ", ".join(map(_name, cases))


def _shortened(text: str) -> str:
    line = " ".join(text.split()).rstrip(".")
    return line if len(line) <= _LONGEST_REASON else f"{line[: _LONGEST_REASON - 3]}..."
