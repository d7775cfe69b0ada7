"""Whether the machine was fit to measure, by the conditions that the results carry."""

from collections import Counter
from collections.abc import Iterator, Sequence

import attrs

from comparative_benchmark.report.inputs import Inputs, Result, number
from comparative_benchmark.results.compare_samples import listed, mapping

# Fewer processes than this can carry no verdict, see `statistics.verdict`.
_FEWEST_PROCESSES = 3
_LOAD = 0.5
_BAD_SHARE = 0.1
_ORDER = ("bad", "doubtful", "unknown", "good")
_HEADLINES = {
    "bad": "Not fit",
    "doubtful": "Doubtful",
    "unknown": "Not fully known",
    "good": "Fit",
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

    It can not see what nobody recorded: a run whose system does not tell the governor, or whose
    blocks are too short for the kernel's ticks, is `unknown` there and not `good`.

    Args:
      inputs: what the files hold.
      drift: why the machine may have changed since the baseline results; None if nothing says so.
    """
    measured = [result for result in inputs.results if listed(result.case.metrics, "processes")]
    findings = [
        *_contention(measured),
        *_steadiness(inputs.results),
        *_sampling(measured),
        *_hosts(inputs),
    ]
    if drift:
        findings.append(Finding("doubtful", drift))
    return Fitness(findings=sorted(findings, key=lambda finding: _ORDER.index(finding.level)))


def _contention(results: Sequence[Result]) -> Iterator[Finding]:
    if not results:
        yield Finding("unknown", "no result holds samples")
        return
    found = [mapping(result.case.metrics, "contention") for result in results]
    disturbed = [item for item in found if item.get("contended") is True]
    unknown = sum(item.get("contended") is None for item in found)
    count = len(found)
    if disturbed:
        level = "bad" if len(disturbed) > _BAD_SHARE * count else "doubtful"
        worst = max(disturbed, key=lambda item: number(item, "foreign_cpu_share") or 0.0)
        why = next(iter(listed(worst, "reasons")), "no reason told")
        yield Finding(
            level, f"others disturbed {len(disturbed)} of {count} trials, the worst: {why}"
        )
    if unknown:
        yield Finding("unknown", f"not known whether others disturbed {unknown} of {count} trials")
    if not disturbed and unknown < count:
        yield Finding("good", f"nobody disturbed the {count - unknown} trials that can tell")


def _steadiness(results: Sequence[Result]) -> Iterator[Finding]:
    unsteady = sum(result.case.status == "unsteady" for result in results)
    if unsteady:
        yield Finding("doubtful", f"{unsteady} of {len(results)} trials did not become steady")


def _sampling(results: Sequence[Result]) -> Iterator[Finding]:
    fixed = sum(result.case.metrics.get("stop_reason") == "fixed" for result in results)
    if fixed:
        yield Finding(
            "doubtful",
            f"{fixed} of {len(results)} trials had a fixed number of iterations: whether they were "
            "steady was not tested",
        )
    few = sum(len(listed(r.case.metrics, "processes")) < _FEWEST_PROCESSES for r in results)
    if few:
        yield Finding(
            "doubtful",
            f"{few} of {len(results)} trials had fewer than {_FEWEST_PROCESSES} processes: how "
            "processes differ is not known, so there is no verdict",
        )


def _hosts(inputs: Inputs) -> Iterator[Finding]:
    used = {result.case.run_id: result.case for result in inputs.results}
    hosts = [case.host for case in used.values()]
    governors = Counter(str(host.get("governor") or "") for host in hosts)
    for governor, count in governors.items():
        where = f" in {count} of {len(hosts)} runs" if len(governors) > 1 else ""
        if not governor:
            yield Finding("unknown", f"the system does not tell the CPU governor{where}")
        elif governor != "performance":
            yield Finding("doubtful", f"CPU governor {governor}{where}: clocks may vary")
        else:
            yield Finding("good", f"CPU governor {governor}{where}")
    loads = [next(iter(listed(host, "load_average")), None) for host in hosts]
    known = [float(load) for load in loads if isinstance(load, (int, float))]
    if known:
        busy = max(known) > _LOAD
        yield Finding(
            "doubtful" if busy else "good",
            f"load of {max(known):.1f} CPUs before {'a' if len(known) > 1 else 'the'} run began",
        )
    machines = sorted({result.case.machine for result in inputs.results})
    if len(machines) > 1:
        yield Finding("good", f"{len(machines)} machines, never compared: {', '.join(machines)}")
    if any(str(case.revision or "").endswith("-dirty") for case in used.values()):
        yield Finding("doubtful", "the harness had changes that no revision holds (-dirty)")
