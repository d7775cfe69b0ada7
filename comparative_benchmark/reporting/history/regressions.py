"""Regressions: steps within a window of nights, compared with the noise of that window."""

from collections.abc import Hashable, Mapping, Sequence

import attrs

from comparative_benchmark.analysis.stats.steps import discoveries
from comparative_benchmark.reporting.history import absences, noise
from comparative_benchmark.reporting.history.database import Database
from comparative_benchmark.reporting.history.findings import Finding, Kind, Occurrence, occurrence
from comparative_benchmark.reporting.history.metric_trends import Rise, metric_trends
from comparative_benchmark.reporting.history.queries import Filter, Window, load
from comparative_benchmark.reporting.history.rows import METRICS

DEFAULT_WINDOW = 60
# Smaller rises are not worth anyone's time, however significant.
THRESHOLDS: Mapping[str, float] = {
    "latency_ms": 0.03,
    "compile_ms": 0.10,
    "warm_compile_ms": 0.10,
    "host_memory_mb": 0.05,
    "device_memory_mb": 0.05,
    # Another order of summation changes it by tens of percent; a bug, by powers of ten.
    "error": 1.0,
}
# Target false-discovery rate.
FALSE_RATE = 0.01


@attrs.frozen(kw_only=True)
class Settings:
    """Criteria for regressions.

    Attributes:
      window: number of latest results per series to consider.
      thresholds: smallest rise by metric, as a fraction.
      false_rate: see `discoveries`.
      count_unchanged: count steps that no program change can have caused.
    """

    window: int = DEFAULT_WINDOW
    thresholds: Mapping[str, float] = THRESHOLDS
    false_rate: float = FALSE_RATE
    count_unchanged: bool = False


@attrs.frozen(kw_only=True)
class Report:
    """The findings of a check of the history.

    Attributes:
      findings: those that count, and those that are withheld.
      added: cases that appear in the latest run for the first time; not regressions.
      series: number of series; `judged` trends were long enough to detect steps.
      short: series with fewer than `FEWEST_NIGHTS` results with a latency.
      floor: noise of the latency by machine and device, as a fraction.
    """

    findings: Sequence[Finding]
    added: Sequence[Finding]
    series: int
    judged: int
    short: int
    floor: Mapping[str, float]

    @property
    def counted(self) -> list[Finding]:
        """Findings that are not withheld."""
        return [finding for finding in self.findings if not finding.withheld]


def look(database: Database, which: Filter, settings: Settings | None = None) -> Report:
    """Checks the latest nights of the series that a filter matches.

    `which.until` is the night to check. `which.since` excludes findings that began earlier, but not
    earlier nights, which serve as the reference for steps.

    Raises:
      HistoryError: the database fails.
    """
    settings = settings or Settings()
    window = load(database, attrs.evolve(which, since=None), window=settings.window)
    floors = noise.floors(window)
    trends = metric_trends(window)
    candidates = [rise for trend in trends for rise in trend.rises(settings.thresholds)]
    judged = sum(len(trend.series) for trend in trends)
    limit = discoveries([rise.step.p for rise in candidates], judged, settings.false_rate)
    found = [_finding(rise, window, floors) for rise in candidates if rise.step.p <= limit]
    if settings.count_unchanged:
        found = [attrs.evolve(finding, withheld="") for finding in found]
    found += absences.turned(window)
    found += absences.missing(window, most_runs=settings.window)
    if which.since is not None:
        found = [finding for finding in found if finding.first_bad.time >= which.since]
    latency = trends[METRICS.index("latency_ms")]
    return Report(
        findings=sorted(found, key=_order),
        added=absences.added(window),
        series=len(window.nights),
        judged=judged,
        short=len(window.nights) - len(latency.series),
        floor={
            ", ".join(map(str, where)): value
            for (metric, where), value in floors.items()
            if metric == "latency_ms" and isinstance(where, tuple)
        },
    )


def _finding(rise: Rise, window: Window, floors: Mapping[tuple[str, Hashable], float]) -> Finding:
    step, dimensions = rise.step, window.dimensions[rise.series]
    good, bad = (occurrence(night, window) for night in (rise.last_good, rise.first_bad))
    finding = Finding(
        kind=Kind.STEP,
        dimensions=dimensions,
        metric=rise.metric,
        before=step.before,
        after=step.before * step.ratio,
        ratio=step.ratio,
        low=step.low,
        high=step.high,
        p=step.p,
        last_good=good,
        first_bad=bad,
        nights=rise.nights,
        what=f"{rise.metric} x {step.ratio:.3g} ({step.low:.3g} to {step.high:.3g}) for "
        f"{rise.nights} night{'' if rise.nights == 1 else 's'}",
    )
    # The same program must give the same answer, on any machine at any time.
    if rise.metric == "error":
        return finding
    floor = floors.get((rise.metric, noise.place(dimensions)), 0.0)
    if step.ratio <= 1 + floor:
        return attrs.evolve(
            finding,
            withheld=f"unchanged programs differ by up to {floor:.1%} between these nights",
        )
    return attrs.evolve(finding, withheld=_unchanged(good, bad))


def _unchanged(good: Occurrence, bad: Occurrence) -> str:
    """Returns the reason if no known condition changed between two nights; empty if one did."""
    same_program = good.program and good.program == bad.program
    same_around = good.versions == bad.versions and good.revision == bad.revision
    if same_program and same_around and noise.identified(good.versions):
        return "the compiled program and package versions are identical, so the machine changed"
    return ""


def _order(finding: Finding) -> tuple[bool, int, float, str]:
    kinds = list(Kind)
    first = {Kind.STATUS: 0, Kind.STEP: 1, Kind.MISSING: 2}
    assert len(first) == len(kinds)
    return (bool(finding.withheld), first[finding.kind], -(finding.ratio or 0.0), finding.name)
