"""Whether the machine was fit to measure, by the conditions that the results carry."""

from collections import Counter
from collections.abc import Iterator, Sequence

import attrs

from comparative_benchmark.report.inputs import Inputs
from comparative_benchmark.results.case import Case
from comparative_benchmark.results.record import FIXED, Contention, Status

# Fewer processes than this can carry no verdict, see `statistics.verdict`.
_FEWEST_PROCESSES = 3
_LOAD = 0.5
_BAD_SHARE = 0.1
# From the worst.
_HEADLINES = {
    "bad": "Unsuitable",
    "doubtful": "Doubtful",
    "unknown": "Partly unknown",
    "good": "Suitable",
}


@attrs.frozen
class Finding:
    """One thing that was looked at: `good`, `doubtful`, `bad` or `unknown`."""

    level: str
    text: str


@attrs.frozen(kw_only=True)
class Fitness:
    """What the conditions come to.

    Attributes:
      findings: the worst first.
    """

    findings: Sequence[Finding]

    @property
    def level(self) -> str:
        """The worst of all."""
        return self.findings[0].level

    @property
    def headline(self) -> str:
        """A word or two for it."""
        return _HEADLINES[self.level]


def judge_machine(inputs: Inputs, drift: str | None = None) -> Fitness:
    """Returns what the conditions in the files say of the machine.

    It cannot see what nobody recorded: a run whose system does not tell the governor, or whose
    blocks are too short for the kernel's ticks, is `unknown` there and not `good`.

    Args:
      inputs: what the files hold.
      drift: why the machine may have changed since the baseline results; None if nothing says so.
    """
    measured = [case for case in inputs.cases if case.metrics.processes]
    findings = [
        *_contention(measured),
        *_sampling(inputs.cases, measured),
        *_hosts(inputs.cases),
    ]
    if drift:
        findings.append(Finding("doubtful", drift))
    order = list(_HEADLINES)
    return Fitness(findings=sorted(findings, key=lambda finding: order.index(finding.level)))


def _contention(cases: Sequence[Case]) -> Iterator[Finding]:
    if not cases:
        yield Finding("unknown", "no result contains samples")
        return
    found = [case.metrics.contention or Contention() for case in cases]
    disturbed = [item for item in found if item.contended]
    unknown = sum(item.contended is None for item in found)
    count = len(found)
    if disturbed:
        level = "bad" if len(disturbed) > _BAD_SHARE * count else "doubtful"
        worst = max(disturbed, key=lambda item: item.foreign_cpu_share or 0.0)
        why = next(iter(worst.reasons), "no reason recorded")
        yield Finding(level, f"{len(disturbed)} of {count} trials were disturbed; the worst: {why}")
    if unknown:
        yield Finding("unknown", f"unknown whether {unknown} of {count} trials were disturbed")
    if not disturbed and unknown < count:
        yield Finding("good", f"{count - unknown} trials were not disturbed")


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
