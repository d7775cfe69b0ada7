"""Summary of results: winners, failures, changes, and fitness of the machine.

The page, the Markdown text and the chart are three views of it.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import attrs

from comparative_benchmark.analysis.stats.analysis import NOISE_THRESHOLD
from comparative_benchmark.reporting.history.rows import TrendPoint
from comparative_benchmark.reporting.report.details import EnvironmentDiff, environment_diff
from comparative_benchmark.reporting.report.inputs import Inputs, ReportCase
from comparative_benchmark.reporting.report.standings import (
    Contest,
    Judged,
    choose_baseline,
    contests,
    judge,
)
from comparative_benchmark.reporting.report.trends import Changes, Trends, find_changes, trends_of
from comparative_benchmark.results.case import LATENCY, Case
from comparative_benchmark.results.comparing.compare import competitor_among
from comparative_benchmark.results.comparing.compare_remarks import mixture_remarks
from comparative_benchmark.results.record import FIXED, Contention, Status

# Fewer processes than this cannot support a verdict, see `analysis.stats.analysis.verdict`.
_FEWEST_PROCESSES = 3
_LOAD = 0.5
_BAD_SHARE = 0.1
# The worst first.
_HEADLINES = {
    "bad": "Unsuitable",
    "doubtful": "Doubtful",
    "unknown": "Partly unknown",
    "good": "Suitable",
}


@attrs.frozen
class Finding:
    """The result of one check: `good`, `doubtful`, `bad` or `unknown`."""

    level: str
    text: str


@attrs.frozen(kw_only=True)
class Fitness:
    """The fitness of the machine during the runs.

    Attributes:
      findings: the worst first.
    """

    findings: Sequence[Finding]

    @property
    def level(self) -> str:
        """The worst level of all."""
        return self.findings[0].level

    @property
    def headline(self) -> str:
        """A short text for it."""
        return _HEADLINES[self.level]


def judge_machine(inputs: Inputs, drift: str | None = None) -> Fitness:
    """Judges the machine by the conditions recorded in the files.

    Conditions that were not recorded are `unknown`, not `good`: e.g. if the system does not report
    the governor, or blocks are too short for the kernel's ticks.

    Args:
      inputs: content of the files.
      drift: why the machine may have changed since the baseline results; None without signs of it.
    """
    measured = [case for case in inputs.cases if case.metrics.processes]
    findings = [*_contention(measured), *_sampling(inputs.cases, measured), *_hosts(inputs.cases)]
    if drift:
        findings.append(Finding("doubtful", drift))
    order = list(_HEADLINES)
    return Fitness(findings=sorted(findings, key=lambda finding: order.index(finding.level)))


def _contention(cases: Sequence[Case]) -> Iterator[Finding]:
    if not cases:
        yield Finding("unknown", "no result contains samples")
        return
    contentions = [case.metrics.contention or Contention() for case in cases]
    disturbed = [item for item in contentions if item.contended]
    unknown = sum(item.contended is None for item in contentions)
    count = len(contentions)
    if disturbed:
        level = "bad" if len(disturbed) > _BAD_SHARE * count else "doubtful"
        worst = max(disturbed, key=lambda item: item.foreign_cpu_share or 0.0)
        why = next(iter(worst.reasons), "no reason recorded")
        yield Finding(level, f"disturbances in {len(disturbed)} of {count} trials; worst: {why}")
    if unknown:
        yield Finding("unknown", f"disturbance data is missing for {unknown} of {count} trials")
    if not disturbed and unknown < count:
        yield Finding("good", f"no disturbances in {count - unknown} of {count} trials")


def _sampling(cases: Sequence[Case], measured: Sequence[Case]) -> Iterator[Finding]:
    unsteady = sum(case.status is Status.UNSTEADY for case in cases)
    if unsteady:
        yield Finding("doubtful", f"{unsteady} of {len(cases)} trials did not reach a steady speed")
    fixed = sum(case.metrics.stop_reason == FIXED for case in measured)
    if fixed:
        yield Finding(
            "doubtful",
            f"{fixed} of {len(measured)} trials ran a fixed number of iterations, so their "
            "steadiness was not tested",
        )
    few = sum(len(case.metrics.processes or ()) < _FEWEST_PROCESSES for case in measured)
    if few:
        yield Finding(
            "doubtful",
            f"{few} of {len(measured)} trials had fewer than {_FEWEST_PROCESSES} processes: the "
            "variation between processes is unknown, so no verdict is possible",
        )


def _hosts(cases: Sequence[Case]) -> Iterator[Finding]:
    runs = {case.result.run_id: case for case in cases}.values()
    hosts = [case.host for case in runs if case.host]
    governors = Counter(host.governor for host in hosts)
    for governor, count in governors.items():
        where = f" in {count} of {len(hosts)} runs" if len(governors) > 1 else ""
        if not governor:
            yield Finding("unknown", f"the system does not report the CPU governor{where}")
        elif governor != "performance":
            yield Finding("doubtful", f"CPU governor {governor}{where}: clocks may vary")
        else:
            yield Finding("good", f"CPU governor {governor}{where}")
    if hosts:
        busiest = max(host.load_average[0] for host in hosts)
        yield Finding(
            "doubtful" if busiest > _LOAD else "good",
            f"{'highest ' * (len(hosts) > 1)}load average before a run: {busiest:.1f}",
        )
    machines = sorted({case.machine for case in cases})
    if len(machines) > 1:
        yield Finding(
            "good", f"{len(machines)} machines, not compared with each other: {', '.join(machines)}"
        )
    if any((case.revision or "").endswith("-dirty") for case in runs):
        yield Finding("doubtful", "the harness had uncommitted changes (-dirty)")


# The worst first; other statuses are not failures.
_BROKEN = (
    *(Status.WRONG_OUTPUT, Status.CRASHED, Status.FAILED, Status.OUT_OF_MEMORY, Status.TIMEOUT),
    Status.UNSTEADY,
)


@attrs.frozen(kw_only=True)
class Summary:
    """The content of a report.

    Attributes:
      baseline: competitor that speed-ups are relative to.
      statuses: number of results by status.
      broken: results that are neither ok nor unsupported, the worst kind first.
      remarks: warnings for readers who rank competitors.
      threshold: smaller differences of latencies are noise.
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

    @property
    def place(self) -> str:
        """End of the headline: its contest, unless it is the only one and of latencies."""
        first, *others = self.contests
        return f", on {first.name}" if others or first.quantity != LATENCY else ""


def summarize(
    inputs: Inputs,
    *,
    against: str | None = None,
    baseline_file: Path | None = None,
    trends: Trends = lambda _: (),
    threshold: float = NOISE_THRESHOLD,
) -> Summary:
    """Returns the content of a report.

    Args:
      inputs: the results.
      against: competitor to compare with; None lets `choose_baseline` choose.
      baseline_file: older results.
      trends: earlier measurements of the cases.
      threshold: smaller differences of latencies are noise.

    Raises:
      UsageError: no result is of that competitor.
      ResultsFileError: the older results cannot be read.
    """
    cases = inputs.cases
    known = sorted({case.competitor for case in cases})
    baseline = competitor_among(against, known) if against else choose_baseline(cases)
    judged = judge(cases, baseline, threshold=threshold)
    changes = None
    if baseline_file:
        changes = find_changes(baseline_file, inputs, threshold=threshold, trends=trends)
    groups = contests(judged, threshold=threshold)
    broken = [case for case in cases if case.status in _BROKEN]
    return Summary(
        inputs=inputs,
        baseline=baseline,
        judged=judged,
        contests=groups,
        statuses=dict(Counter(case.result.word for case in cases).most_common()),
        broken=sorted(broken, key=lambda case: _BROKEN.index(case.status)),
        changes=changes,
        fitness=judge_machine(inputs, changes.remarks.drift if changes else None),
        environments=environment_diff(inputs.runs, changes.runs if changes else ()),
        trends=trends_of(inputs, judged, trends),
        remarks=_remarks(groups, cases),
        threshold=threshold,
    )


def _remarks(contests: Sequence[Contest], cases: Sequence[Case]) -> list[str]:
    remarks = []
    levels = {standing.level for contest in contests for standing in contest.standings}
    if len(levels) > 1:
        remarks.append(
            "Compiler-level competitors run an exported program without its framework. The latency "
            "of framework-level competitors includes framework overhead."
        )
    return remarks + mixture_remarks(cases)
