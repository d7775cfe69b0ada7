"""The first things to know of results: who wins, what is broken, what changed, was the machine fit.

The page, the Markdown text and the chart are three views of this.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from comparative_benchmark.report.changes import Changes, find_changes
from comparative_benchmark.report.environments import EnvironmentDiff, environment_diff
from comparative_benchmark.report.fitness import Fitness, judge_machine
from comparative_benchmark.report.inputs import Inputs, ReportError, Result
from comparative_benchmark.report.ratios import Judged, choose_baseline, judge
from comparative_benchmark.report.standings import Contest, contests
from comparative_benchmark.report.trends import JoinedTrends, TrendPoint, Trends, trends_of
from comparative_benchmark.report.wording import BROKEN
from comparative_benchmark.results.codec import ResultsFileError
from comparative_benchmark.results.compare import read_document
from comparative_benchmark.results.compare_samples import listed
from comparative_benchmark.stats.analysis import NOISE_THRESHOLD


@attrs.frozen(kw_only=True)
class Summary:
    """Everything that a report shows.

    Attributes:
      baseline: competitor that speed-ups are against.
      statuses: how many results have each.
      broken: results that are neither ok nor unsupported, the worst kind first.
      remarks: what a reader must not overlook when ranking.
    """

    inputs: Inputs
    baseline: str
    judged: Sequence[Judged]
    contests: Sequence[Contest]
    statuses: Mapping[str, int]
    broken: Sequence[Result]
    changes: Changes | None
    fitness: Fitness
    environments: EnvironmentDiff
    trends: Mapping[str, Sequence[TrendPoint]]
    remarks: Sequence[str]


def summarize(
    inputs: Inputs,
    *,
    against: str | None = None,
    baseline_file: Path | None = None,
    trends: Trends | None = None,
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
      ReportError: no result is of that competitor, or the older results can not be read.
    """
    baseline = against or choose_baseline(inputs.results)
    known = sorted({result.case.competitor for result in inputs.results})
    if baseline not in known:
        raise ReportError(f"no result is of {baseline}; there are {', '.join(known)}")
    judged = judge(inputs.results, baseline, threshold=threshold)
    changes, old_runs = None, []
    if baseline_file is not None:
        try:
            old = read_document(baseline_file)
        except ResultsFileError as error:
            raise ReportError(str(error)) from error
        changes = find_changes(
            baseline_file.name, old, inputs.document, inputs.results, threshold=threshold
        )
        old_runs = [run for run in listed(old, "runs") if isinstance(run, Mapping)]
    found = contests(judged)
    statuses: dict[str, int] = {}
    for result in inputs.results:
        statuses[result.case.status] = statuses.get(result.case.status, 0) + 1
    return Summary(
        inputs=inputs,
        baseline=baseline,
        judged=judged,
        contests=found,
        statuses=dict(sorted(statuses.items(), key=lambda item: -item[1])),
        broken=_broken(inputs.results),
        changes=changes,
        fitness=judge_machine(inputs, changes.remarks.drift if changes else None),
        environments=environment_diff(inputs.runs, old_runs),
        trends=trends_of(inputs, judged, trends or JoinedTrends([])),
        remarks=_remarks(found),
    )


def _broken(results: Sequence[Result]) -> list[Result]:
    def severity(result: Result) -> int:
        status = result.case.status
        return BROKEN.index(status) if status in BROKEN else len(BROKEN)

    broken = [result for result in results if result.case.status not in ("ok", "unsupported")]
    return sorted(broken, key=severity)


def _remarks(found: Sequence[Contest]) -> list[str]:
    remarks = []
    standings: list[Any] = [standing for contest in found for standing in contest.standings]
    levels = {standing.level for standing in standings}
    if len(levels) > 1:
        remarks.append(
            "Compiler-level competitors run an exported program without its framework; they stand "
            "beside framework-level ones, which have its overhead."
        )
    frozen = sorted({s.name for s in standings if "frozen" in s.weights})
    if frozen and any(set(s.weights) - {"frozen"} for s in standings):
        remarks.append(
            f"Frozen weights, which a compiler may fold and prepack: {', '.join(frozen)}; others "
            "hold theirs as arguments or parameters."
        )
    return remarks
