"""Regressions: steps within a window of nights, compared with the noise of that window.

The nights are arrays, one per metric. Noise is the difference of unchanged programs between nights.
"""

import math
from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence

import attrs
import numpy as np

from comparative_benchmark.analysis.stats.steps import (
    FEWEST_NIGHTS,
    Array,
    Mask,
    Step,
    boundaries,
    correlation,
    discoveries,
    fit,
    missed,
    noise_scale,
    penalties,
    rises,
    tail,
)
from comparative_benchmark.reporting.history import findings
from comparative_benchmark.reporting.history.database import Database
from comparative_benchmark.reporting.history.findings import (
    Finding,
    Kind,
    Occurrence,
    occurrence,
    place,
)
from comparative_benchmark.reporting.history.queries import Filter, Night, Window, load
from comparative_benchmark.reporting.history.rows import METRICS, OK
from comparative_benchmark.results.comparing.noise_floor import FEWEST_FOR_95

# Errors below this count as this, because the logarithm needs a positive number.
_LEAST_ERROR = 1e-9
# Minimum noise: timer, clock and memory layout cause this much even if a short window shows less.
_LEAST_SCALE = 0.001
_Z = 1.959964
_COLUMNS = (*METRICS, "latency_low_ms", "latency_high_ms")
_FROM_NIGHT = [Night._fields.index(name) for name in _COLUMNS]


@attrs.frozen(kw_only=True)
class MetricTrends:
    """One metric of all series with enough nights.

    Attributes:
      series: the series of each row; `nights` has all of its nights.
      logs: [rows, nights], logarithms; `known` marks existing values.
      own: [rows, nights], variance of each logarithm from its interval; 0 without one.
    """

    metric: str
    series: Sequence[int]
    nights: Sequence[Sequence[Night]]
    logs: Array
    own: Array
    known: Mask

    def rises(self, thresholds: Mapping[str, float]) -> Iterator["Rise"]:
        """Yields the rises that noise is unlikely to cause in a single series."""
        together = correlation(self.logs, self.known)
        # Differences of correlated nights are smaller than the nights' own scatter.
        scale = noise_scale(self.logs, self.known) / math.sqrt(1 - together)
        penalty = penalties(scale, self.known.sum(axis=1), _LEAST_SCALE)
        starts = boundaries(self.logs, self.known, penalty)
        positions = [np.flatnonzero(known) for known in self.known]
        fits = [
            fit(
                self.logs[row, positions[row]],
                self.own[row, positions[row]],
                [int(start) for start in np.searchsorted(positions[row], starts[row])],
                least=_LEAST_SCALE,
                correlation=together,
            )
            for row in range(len(self.series))
        ]
        residuals = [pieces.residuals for pieces in fits]
        heaviness, factor = tail(residuals), missed(scale, residuals)
        for row, pieces in enumerate(pieces.scaled(factor) for pieces in fits):
            for step in rises(pieces, threshold=thresholds[self.metric], tail=heaviness):
                good, bad = (self.nights[row][positions[row][step.night - back]] for back in (1, 0))
                yield Rise(
                    metric=self.metric,
                    series=self.series[row],
                    step=step,
                    last_good=good,
                    first_bad=bad,
                    nights=pieces.nights - step.night,
                )


@attrs.frozen(kw_only=True)
class Rise:
    """A step of a series, with its nights; `nights` is the number since the step."""

    metric: str
    series: int
    step: Step
    last_good: Night
    first_bad: Night
    nights: int


def metric_trends(window: Window) -> list[MetricTrends]:
    """Returns the trends of each of `METRICS`, over the nights that were `ok`."""
    values = _values(window)
    return [_trends(metric, values, window) for metric in METRICS]


def _values(window: Window) -> Array:
    """Returns [series, nights, columns], NaN for missing values."""
    longest = max(map(len, window.nights.values()), default=0)
    values = np.full((len(window.nights), longest, len(_COLUMNS)), np.nan)
    nothing = [None] * len(_COLUMNS)
    for row, nights in enumerate(window.nights.values()):
        # None becomes NaN.
        values[row, : len(nights)] = np.array(
            [
                [night[column] for column in _FROM_NIGHT] if night.status == OK else nothing
                for night in nights
            ],
            dtype=np.float64,
        )
    return values


def _trends(metric: str, values: Array, window: Window) -> MetricTrends:
    chosen = values[:, :, _COLUMNS.index(metric)]
    if metric == "error":
        chosen = np.maximum(chosen, _LEAST_ERROR)
    known = chosen > 0
    rows = np.flatnonzero(known.sum(axis=1) >= FEWEST_NIGHTS)
    known = known[rows]
    own = np.zeros(known.shape)
    if metric == "latency_ms":
        low, high = (values[rows, :, column] for column in (-2, -1))
        positive = known & (low > 0) & (high > 0)
        own = (np.log(np.where(positive, high, 1.0) / np.where(positive, low, 1.0)) / 2 / _Z) ** 2
    series = list(window.nights)
    return MetricTrends(
        metric=metric,
        series=[series[row] for row in rows],
        nights=[window.nights[series[row]] for row in rows],
        logs=np.log(np.where(known, chosen[rows], 1.0)),
        own=own,
        known=known,
    )


# Limits the number of pairs; nights a year apart reveal little about noise.
_MOST_NIGHTS = 60


def noise_floors(window: Window) -> dict[tuple[str, Hashable], float]:
    """Returns by metric and place how much unchanged programs differ, as a fraction.

    It pools all pairs of nights of a series whose compiled program and package versions are known
    and equal, on one machine and device, and takes the 95 % quantile of their ratios, or the
    largest of fewer than ten pairs. The causes affect other programs, too: other processes, clocks,
    memory layout, drift. Noise common to all nights is not detected. See
    docs/design/0005-unchanged-programs.md for method and limits.
    """
    pairs: defaultdict[tuple[str, Hashable], list[Array]] = defaultdict(list)
    for series, nights in window.nights.items():
        if not window.dimensions[series]["machine"]:
            continue
        where = place(window.dimensions[series])
        for group in _noise_unchanged(nights, window.version_sets):
            for metric in METRICS:
                values = [getattr(night, metric) for night in group]
                known = [value for value in values if value]
                if len(known) > 1:
                    pairs[metric, where].append(_differences(known))
    return {key: _floor(np.concatenate(ratios)) for key, ratios in pairs.items()}


def identified(versions: Mapping[str, str]) -> bool:
    """Returns whether versions identify the packages: a development version may be any build."""
    return bool(versions) and not any("dev" in version for version in versions.values())


def _noise_unchanged(
    nights: list[Night], version_sets: Mapping[int, Mapping[str, str]]
) -> list[list[Night]]:
    groups: defaultdict[tuple[str, int], list[Night]] = defaultdict(list)
    for night in nights:
        if night.program and night.status == OK:
            groups[night.program, night.version_set].append(night)
    return [
        group[-_MOST_NIGHTS:]
        for (_, version_set), group in groups.items()
        if len(group) > 1 and identified(version_sets[version_set])
    ]


def _differences(values: list[float]) -> Array:
    logs = np.log(values)
    first, second = np.triu_indices(len(values), 1)
    differences: Array = np.abs(logs[first] - logs[second])
    return differences


def _floor(differences: Array) -> float:
    share = 0.95 if differences.size >= FEWEST_FOR_95 else 1.0
    return math.expm1(float(np.quantile(differences, share)))


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


def find_regressions(database: Database, which: Filter, settings: Settings | None = None) -> Report:
    """Checks the latest nights of the series that a filter matches.

    `which.until` is the night to check. `which.since` excludes findings that began earlier, but not
    earlier nights, which serve as the reference for steps.

    Raises:
      HistoryError: the database fails.
    """
    settings = settings or Settings()
    whole = load(database, attrs.evolve(which, since=None), window=settings.window)
    absences = findings.absences(whole)
    # Retired cases raise no alarm, whatever their last nights were.
    kept = {s: n for s, n in whole.nights.items() if len(absences[s]) < settings.window}
    window = attrs.evolve(whole, nights=kept)
    floors = noise_floors(window)
    trends = metric_trends(window)
    candidates = [rise for trend in trends for rise in trend.rises(settings.thresholds)]
    judged = sum(len(trend.series) for trend in trends)
    limit = discoveries([rise.step.p for rise in candidates], judged, settings.false_rate)
    counted = [_finding(rise, window, floors) for rise in candidates if rise.step.p <= limit]
    if settings.count_unchanged:
        counted = [attrs.evolve(finding, withheld="") for finding in counted]
    counted += findings.turned(window)
    counted += findings.missing(window, absences)
    if which.since is not None:
        counted = [finding for finding in counted if finding.first_bad.time >= which.since]
    latency = trends[METRICS.index("latency_ms")]
    return Report(
        findings=sorted(counted, key=_order),
        added=findings.added(whole),
        series=len(whole.nights),
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
    floor = floors.get((rise.metric, place(dimensions)), 0.0)
    if step.ratio <= 1 + floor:
        return attrs.evolve(
            finding, withheld=f"unchanged programs differ by up to {floor:.1%} on this machine"
        )
    return attrs.evolve(finding, withheld=_unchanged(good, bad))


def _unchanged(good: Occurrence, bad: Occurrence) -> str:
    """Returns the reason if no known condition changed between two nights; empty if one did."""
    same_program = good.program and good.program == bad.program
    same_around = good.versions == bad.versions and good.revision == bad.revision
    if same_program and same_around and identified(good.versions):
        return "the compiled program and package versions are identical, so the machine changed"
    return ""


def _order(finding: Finding) -> tuple[bool, int, float, str]:
    first = (Kind.STATUS, Kind.STEP, Kind.MISSING).index(finding.kind)
    return (bool(finding.withheld), first, -(finding.ratio or 0.0), finding.name)
