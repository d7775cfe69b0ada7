"""The first things to know of results: who wins, what is broken, what changed, was the machine fit.

The page, the Markdown text and the chart are three views of this.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs

from comparative_benchmark.report.changes import Changes, find_changes
from comparative_benchmark.report.environments import EnvironmentDiff, environment_diff
from comparative_benchmark.report.fitness import Fitness, judge_machine
from comparative_benchmark.report.inputs import Inputs, ReportCase, ReportError
from comparative_benchmark.report.ratios import Judged, choose_baseline, judge
from comparative_benchmark.report.standings import Contest, contests
from comparative_benchmark.report.trends import TrendPoint, Trends, trends_of
from comparative_benchmark.results.case import Case
from comparative_benchmark.results.mixtures import mixture_remarks
from comparative_benchmark.results.record import Status
from comparative_benchmark.stats.analysis import NOISE_THRESHOLD

# From the worst; what is not here ran to its end, or was never due to run.
_BROKEN = (
    *(Status.WRONG_OUTPUT, Status.CRASHED, Status.FAILED, Status.OUT_OF_MEMORY, Status.TIMEOUT),
    Status.UNSTEADY,
)


@attrs.frozen(kw_only=True)
class Summary:
    """Everything that a report shows.

    Attributes:
      baseline: competitor that speed-ups are against.
      statuses: how many results have each.
      broken: results that are neither ok nor unsupported, the worst kind first.
      remarks: what a reader must not overlook when ranking.
      threshold: differences of latencies below it are noise.
    """

    inputs: Inputs
    baseline: str
    judged: Sequence[Judged]
    contests: Sequence[Contest]
    statuses: Mapping[str, int]
    broken: Sequence[ReportCase]
    changes: Changes | None
    fitness: Fitness
    environments: EnvironmentDiff
    trends: Mapping[str, Sequence[TrendPoint]]
    remarks: Sequence[str]
    threshold: float = NOISE_THRESHOLD


def summarize(
    inputs: Inputs,
    *,
    against: str | None = None,
    baseline_file: Path | None = None,
    trends: Trends = lambda _: (),
    threshold: float = NOISE_THRESHOLD,
) -> Summary:
    """Returns what a report shows.

    Args:
      inputs: the results.
      against: competitor to compare with; None lets `choose_baseline` choose.
      baseline_file: older results.
      trends: how cases went over time.
      threshold: differences of latencies below it are noise.

    Raises:
      ReportError: no result is of that competitor.
      ResultsFileError: the older results cannot be read.
    """
    cases = inputs.cases
    baseline = against or choose_baseline(cases)
    known = sorted({case.competitor for case in cases})
    if baseline not in known:
        raise ReportError(f"no results of {baseline}; choices are {', '.join(known)}")
    judged = judge(cases, baseline, threshold=threshold)
    changes = None
    if baseline_file:
        changes = find_changes(baseline_file, inputs, threshold=threshold, trends=trends)
    found = contests(judged)
    broken = [case for case in cases if case.status in _BROKEN]
    return Summary(
        inputs=inputs,
        baseline=baseline,
        judged=judged,
        contests=found,
        statuses=dict(Counter(case.result.word for case in cases).most_common()),
        broken=sorted(broken, key=lambda case: _BROKEN.index(case.status)),
        changes=changes,
        fitness=judge_machine(inputs, changes.remarks.drift if changes else None),
        environments=environment_diff(inputs.runs, changes.runs if changes else ()),
        trends=trends_of(inputs, judged, trends),
        remarks=_remarks(found, cases),
        threshold=threshold,
    )


def _remarks(found: Sequence[Contest], cases: Sequence[Case]) -> list[str]:
    remarks = []
    levels = {standing.level for contest in found for standing in contest.standings}
    if len(levels) > 1:
        remarks.append(
            "Compiler-level competitors run an exported program without its framework. The latency "
            "of framework-level competitors includes framework overhead."
        )
    return remarks + mixture_remarks(cases)
