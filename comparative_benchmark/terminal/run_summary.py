"""The recommendation at the end of a run: which competitor to choose, and why."""

import itertools
import re
import statistics
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from pathlib import Path

from comparative_benchmark.analysis.stats.analysis import (
    DECISIVE_PROCESSES,
    NOISE_THRESHOLD,
    Verdict,
)
from comparative_benchmark.backends.missing_packages import Absence
from comparative_benchmark.engine import typed, with_more_processes
from comparative_benchmark.results.case import Case
from comparative_benchmark.results.comparing.compare import Family
from comparative_benchmark.results.comparing.comparison import Comparison, interval_of
from comparative_benchmark.results.record import AGREED, FIXED, Status
from comparative_benchmark.terminal.compare_views import latency_text, ratio_text
from comparative_benchmark.terminal.tables import digits

_LONGEST_REASON = 160
_NO_WINNER = "No winner, because other processes used the CPUs; the fastest was"


def split(cases: Sequence[Case]) -> tuple[list[Case], str]:
    """Returns the cases whose packages are installed, and the line for the others.

    The line is empty if all are installed. For a backend that ran models of another framework, it
    names the missing framework. Older files do not record missing packages, so all their cases
    count as installed.
    """
    installed = [case for case in cases if not case.result.absence]
    present = {case.result.definition.backend for case in installed}
    absences: dict[str, Absence] = {}
    for case in cases:
        if absence := case.result.absence:
            backend = case.result.definition.backend
            name = f"{backend} for {case.framework} models" if backend in present else backend
            if absence.recipes_of is not None:
                name = f"{', '.join(absence.modules)} for {absence.recipes_of} recipes"
            absences[name] = absence
    return installed, line(absences)


def line(absences: Mapping[str, Absence]) -> str:
    """Returns e.g. `not installed: iree, tflite (pip install -e '.[all]')`; empty for none.

    Args:
      absences: by the name of the backend, or of another missing component.
    """
    groups: dict[str, list[str]] = {}
    for name, absence in absences.items():
        groups.setdefault(absence.remedy, []).append(name)
    texts = (f"{', '.join(names)} ({remedy})" for remedy, names in groups.items())
    return f"not installed: {', '.join(texts)}" if groups else ""


def summary_lines(
    cases: Sequence[Case],
    *,
    absent: str = "",
    command: Sequence[str] = (),
    output: Path | None = None,
) -> list[str]:
    """Returns sentences on the competitors of one workload, or of one model at several batch sizes.

    The fastest competitor has the lowest latency among those that compute in the workload's own
    type and have a correct output. It is called faster than another only if the verdict for
    this pair, corrected for all pairs (`Family`), is `faster`.

    Args:
      cases: results of a run. For other sets of workloads, and for compile times, nothing is
        returned.
      absent: line that names backends that are not installed.
      command: the user's command line, to suggest how to repeat the run.
      output: results file of the run.
    """
    if len(cases) < 2 or any(c.metrics.compile_only or c.metrics.throughput for c in cases):
        return []
    installed, lacking = split(cases)
    others = [f"Other backends are {line}." for line in (lacking, absent) if line]
    if len({(case.workload, case.device) for case in cases}) != 1:
        lines = by_batch(cases)
        return [*lines, *others] if lines else []
    good = [case for case in installed if case.status is Status.OK]
    able = [case for case in good if case.result.ranked]
    ranked = rank(installed)
    which = "No ranked competitor" if good else "No competitor"
    lines = [f"{which} has a correct output."]
    if ranked:
        family = Family(cases, threshold=NOISE_THRESHOLD)
        lines = [_choice(ranked, family), *_comparison_lines(ranked, family)]
        lacking_processes = any(family.lacks_processes(ranked[0], case) for case in ranked[1:])
        if lacking_processes and command and output:
            again = with_more_processes(command, output, DECISIVE_PROCESSES)
            lines.append(f"More processes may decide this; to add them, run: {again}")
    if apart := [case for case in able if case.is_recipe]:
        lines.append(f"Not ranked (lower precision): {_names(apart)}.")
    if ranked:  # if none is ranked, the failures are listed above
        failed = [case for case in installed if case not in good]
        lines += [f"{_name(case)}: {_shortened(case.why)}." for case in failed]
    lines += others
    return lines + ([f"To repeat: {typed(command)}"] if command else [])


def fastest(cases: Sequence[Case]) -> Case | None:
    """Returns the fastest competitor that can be recommended for one workload.

    None for several workloads or devices, for compile times and throughput, and if no competitor
    has a correct output in the workload's own type.
    """
    return None if _why_not_ranked(cases) else next(iter(rank(cases)), None)


def recommendation(cases: Sequence[Case]) -> str:
    """Returns the sentences of `summary_lines`, or the reason for a missing recommendation."""
    if sentences := summary_lines(cases):
        return "\n".join(sentences)
    if reason := _why_not_ranked(cases):
        return f"No recommendation: {reason}."
    [case] = cases
    if rank(cases):
        return _choice(cases, Family(cases, threshold=NOISE_THRESHOLD))
    return f"{_name(case)}: {_shortened(case.why)}."


def _why_not_ranked(cases: Sequence[Case]) -> str:
    if not cases:
        return "there are no results"
    if any(case.metrics.compile_only for case in cases):
        return "only compile times were measured"
    if any(case.metrics.throughput for case in cases):
        return "throughput was measured, not latency"
    count = len({(case.workload, case.device) for case in cases})
    return f"there are results for {count} workloads; select one" if count > 1 else ""


def rank(cases: Sequence[Case]) -> list[Case]:
    """Returns the cases that can be recommended, fastest first."""
    able = [case for case in cases if case.result.ranked and not case.is_recipe]
    return sorted(able, key=lambda case: (case.metrics.judged_on_integers, _latency_ms(case)))


def by_batch(cases: Sequence[Case]) -> list[str]:
    """Returns the fastest competitor for each range of batch sizes of one model.

    Nothing for several models, or if one batch size has several workloads.
    """
    if len({apart_from_batch(case) for case in cases}) != 1:
        return []
    groups: defaultdict[int, list[Case]] = defaultdict(list)
    for case in cases:
        groups[case.result.definition.batch_size or 0].append(case)
    workloads = {case.workload for case in cases}
    best = {batch: ranked for batch in sorted(groups) if (ranked := rank(groups[batch]))}
    if 0 in groups or len(groups) != len(workloads) or not best:
        return []
    ranges = [
        (name, [batch for batch, _ in items])
        for name, items in itertools.groupby(best.items(), lambda item: _name(item[1][0]))
    ]
    if len(ranges) == 1:
        [(name, batches)] = ranges
        every = "every batch size from" if 1 < len(batches) == len(groups) else "batch"
        lines = [f"Use {name} at {every} {_range_text(batches)}."]
    else:
        (first, until), *between, (last, since) = ranges
        parts = [f"{first} up to batch {until[-1]}"]
        parts += [f"{name} at batch {_range_text(batches)}" for name, batches in between]
        lines = [f"Use {', '.join([*parts, f'{last} from batch {since[0]} on'])}."]
    none = [batch for batch in sorted(groups) if batch not in best]
    lines += [f"No ranked competitor has a correct output at batch {batch}." for batch in none]
    for batch, ranked in best.items():
        family = Family(groups[batch], threshold=NOISE_THRESHOLD)
        pairs = [(case, family.comparison(ranked[0], case)) for case in ranked[1:]]
        if any(item.disturbed for _, item in pairs):
            lines[0] = re.sub(r"^Use\b", _NO_WINNER, lines[0])
        close = [case for case, item in pairs if item.verdict is not Verdict.SLOWER]
        if close:
            lines.append(
                f"At batch {batch}, {_name(ranked[0])} is not clearly faster than {_names(close)}."
            )
    return lines


def apart_from_batch(case: Case) -> Hashable:
    """Returns a key of model, data type and device, which is the same for all batch sizes."""
    definition = case.result.definition
    workload = definition.workload
    model = (workload.architecture, workload.config_digest, workload.checkpoint)
    return *model, workload.data_type or definition.data_type, case.device


def _range_text(batches: Sequence[int]) -> str:
    return f"{batches[0]}" if len(batches) == 1 else f"{batches[0]} to {batches[-1]}"


def _choice(ranked: Sequence[Case], family: Family) -> str:
    """Returns the choice, its certainty, and its cost."""
    best, *rest = ranked
    claim = "the lowest latency" if rest else "the only competitor"
    proof = "with a correct output"
    if best.result.word == AGREED:
        lack = "the truth is in doubt" if best.metrics.truth_in_doubt else "no float64 run exists"
        proof = f"with an output that agrees with a plain run ({lack})"
    if best.metrics.judged_on_integers:
        proof += " (integers only, which do not test precision)"
    costs = [text for text in (_compile_text(best), _memory_text(best)) if text]
    cost = f"; it {' and '.join(costs)}" if costs else ""
    is_disturbed = any(family.comparison(best, case).disturbed for case in rest)
    start = _NO_WINNER if is_disturbed else "Use"
    return f"{start} {_name(best)}: {_latency_text(best)}, {claim} {proof}{cost}."


def _comparison_lines(ranked: Sequence[Case], family: Family) -> list[str]:
    """Returns how much slower the others are, and which differences are uncertain."""
    best, *rest = ranked
    behind, open_ones = [], []
    for case in rest:
        comparison = family.comparison(best, case)
        text = f"{_name(case)}{_speedup_text(comparison)}"
        if comparison.verdict is Verdict.SLOWER:
            behind.append(text)
        else:
            open_ones.append(text)
    lines = [f"It is clearly faster than {', '.join(behind)}."] if behind else []
    if open_ones:
        metrics = best.metrics
        is_fixed = len(metrics.processes or ()) < 2 and (metrics.stop_reason or FIXED) == FIXED
        hint = "; to race them, use cbs run without --quick, -w and -iter" if is_fixed else ""
        lines.append(f"It is not clearly faster than {', '.join(open_ones)}{hint}.")
    levels = {case.result.level for case in ranked}
    if len(levels) > 1 and best.result.level == "compiler_level":
        lines.append("It runs an exported program; some of the others include framework overhead.")
    return lines


def _latency_ms(case: Case) -> float:
    interval = interval_of(case) if len(case.metrics.processes or ()) > 1 else None
    return interval.estimate if interval else case.metrics.median_ms or float("inf")


def _latency_text(case: Case) -> str:
    interval = interval_of(case)
    if interval is None or len(case.metrics.processes or ()) < 2:
        return f"{digits(case.metrics.median_ms or 0.0)} ms in one process"
    return f"{latency_text(interval)} ms ({interval.scope})"


def _compile_text(case: Case) -> str:
    cold, warm = case.metrics.compile_time_ms, case.metrics.warm_compile_time_ms
    if cold is None:
        return ""
    again = f", {digits(statistics.median(warm) / 1e3, 2)} s with warm caches" if warm else ""
    return f"compiles in {digits(cold / 1e3, 2)} s{again}"


def _memory_text(case: Case) -> str:
    peak = case.metrics.host_memory_peak_mb
    return "" if peak is None else f"uses at most {peak * 1e6 / 2**20:.0f} MiB"


def _speedup_text(comparison: Comparison) -> str:
    """Returns the speed-up of the baseline, from the ratio of candidate to baseline."""
    return f" ({ratio_text(comparison.ratio)} times as fast)" if comparison.ratio else ""


def _name(case: Case) -> str:
    return f"{case.competitor} ({case.framework})"


def _names(cases: Iterable[Case]) -> str:
    return ", ".join(map(_name, cases))


def _shortened(text: str) -> str:
    line = " ".join(text.split()).rstrip(".")
    return line if len(line) <= _LONGEST_REASON else f"{line[: _LONGEST_REASON - 3]}..."
