"""Findings of the history: steps, and without statistics changed statuses and missing cases."""

import datetime
import enum
import statistics
from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping
from itertools import pairwise
from typing import Any

import attrs

from comparative_benchmark.reporting.history.queries import Night, Window
from comparative_benchmark.reporting.history.rows import OK, competitor, timestamp


class Kind(enum.Enum):
    """Kinds of findings: the first two are regressions, the last is missing data."""

    STEP = "step"
    STATUS = "status"
    MISSING = "missing"


@attrs.frozen(kw_only=True)
class Occurrence:
    """One night of a series, or of the run from which it is missing."""

    time: datetime.datetime
    run_id: str
    revision: str
    versions: Mapping[str, str]
    program: str = ""
    status: str = OK


@attrs.frozen(kw_only=True)
class Finding:
    """A deterioration.

    Attributes:
      dimensions: dimensions of the series; see `rows.DIMENSIONS`.
      metric: one of `rows.METRICS` for a step, else `status`.
      before, after: levels of the metric; None for a status.
      ratio, low, high: after / before, with its 95 % interval.
      p: approximate probability that noise alone causes such a step.
      last_good, first_bad: neighbouring nights in the series.
      nights: number of nights since then, including the first bad one.
      what: a sentence for people.
      withheld: why it does not count; empty if it does.
    """

    kind: Kind
    dimensions: Mapping[str, Any]
    metric: str
    before: float | None = None
    after: float | None = None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    last_good: Occurrence
    first_bad: Occurrence
    nights: int
    what: str
    withheld: str = ""

    @property
    def name(self) -> str:
        """Display name of the series."""
        names = self.dimensions
        where = ", ".join(filter(None, (names["framework"], names["device"])))
        return f"{names['workload']} {competitor(names)} ({where})"

    @property
    def changed(self) -> dict[str, tuple[str | None, str | None]]:
        """Differences between the last good and the first bad night, by package.

        The key of the revision is `revision`; a value is None if one side lacks the package.
        """
        # Without a similar case in a run its versions are unknown, which is not a change.
        versions_known = self.last_good.versions and self.first_bad.versions
        sides = [
            {
                **(side.versions if versions_known else {}),
                **({"revision": side.revision} if side.revision else {}),
            }
            for side in (self.last_good, self.first_bad)
        ]
        return {
            name: (sides[0].get(name), sides[1].get(name))
            for name in sorted(sides[0] | sides[1])
            if sides[0].get(name) != sides[1].get(name)
        }


def occurrence(night: Night, window: Window) -> Occurrence:
    """Returns a night as an occurrence."""
    return Occurrence(
        time=night.time,
        run_id=night.run_id,
        revision=night.revision,
        versions=window.version_sets[night.version_set],
        program=night.program,
        status=night.status,
    )


def changed_text(finding: Finding) -> str:
    """Returns e.g. `jax 0.10.1 -> 0.10.2, revision 0ab -> 1cd`."""
    # The revision last: packages matter most to compiler engineers.
    items = sorted(finding.changed.items(), key=lambda item: (item[0] == "revision", item[0]))
    parts = [f"{name} {old or 'none'} -> {new or 'none'}" for name, (old, new) in items]
    return ", ".join(parts) or "no version is known to have changed"


def as_json(finding: Finding) -> dict[str, Any]:
    """Returns a finding as plain values."""
    value = {
        "kind": finding.kind.value,
        "name": finding.name,
        "metric": finding.metric,
        **{
            name: getattr(finding, name)
            for name in ("before", "after", "ratio", "low", "high", "p", "nights", "what")
        },
        "withheld": finding.withheld or None,
        "changed": {name: list(pair) for name, pair in finding.changed.items()},
        "dimensions": dict(finding.dimensions),
    }
    for name in ("last_good", "first_bad"):
        side: Occurrence = getattr(finding, name)
        value[name] = {**attrs.asdict(side), "time": side.time.isoformat()}
    return value


def place(dimensions: Mapping[str, object]) -> Hashable:
    """Returns the key of the noise: machine, device and source of the measurement."""
    return tuple(dimensions[name] for name in ("source", "machine", "device"))


# Statuses that indicate a fault; with other statuses data are merely missing.
_BROKEN = ("wrong_output", "failed", "out_of_memory", "timeout", "crashed")
# A run with a smaller share of a case's companions was another selection, not a nightly run.
_COMPANIONS = 0.5
# Limit on the characters of a reason within one line; the results file has the full text.
_LONGEST = 200


def turned(window: Window) -> list[Finding]:
    """Returns a finding for each series that was `ok` and is not in its latest night."""
    findings = []
    for series, nights in window.nights.items():
        last = nights[-1]
        good = [position for position, night in enumerate(nights) if night.status == OK]
        if last.status == OK or not good:
            continue
        first = good[-1] + 1
        lasted = len(nights) - first
        findings.append(
            Finding(
                kind=Kind.STATUS if last.status in _BROKEN else Kind.MISSING,
                dimensions=window.dimensions[series],
                metric="status",
                last_good=occurrence(nights[first - 1], window),
                # The last night has the current reason, the first bad one the start.
                first_bad=attrs.evolve(occurrence(nights[first], window), status=last.status),
                nights=lasted,
                what=f"ok -> {last.status}{_reason(last)}",
            )
        )
    return findings


def _reason(night: Night) -> str:
    text = " ".join(night.reason.split())
    return f": {text[:_LONGEST]}" if text else ""


@attrs.frozen
class Run:
    """A run by its identifier: its time, and one night of each series in it."""

    run_id: str
    time_us: int
    nights: Mapping[int, Night]


def absences(window: Window) -> dict[int, list[Run]]:
    """Returns the later runs that each series is missing from.

    A run should contain a case if it contains at least half of the cases that ran with it the last
    time. A manual run of a few cases, or of another shard, is therefore ignored. If the whole run
    is missing (e.g. a shard that was not started), the case counts as missing if two later runs on
    that machine came after half of the case's usual interval between runs.
    """
    runs = _runs(window)
    by_place = _times(window)
    return {
        series: list(_without(series, nights[-1], runs))
        or _gone(nights, by_place[place(window.dimensions[series])])
        for series, nights in window.nights.items()
    }


def missing(window: Window, absent: Mapping[int, list[Run]]) -> list[Finding]:
    """Returns a finding for each series with `absences`."""
    findings = []
    for series, nights in window.nights.items():
        if not (without := absent[series]):
            continue
        findings.append(
            Finding(
                kind=Kind.MISSING,
                dimensions=window.dimensions[series],
                metric="status",
                last_good=occurrence(nights[-1], window),
                first_bad=_absence(series, without[0], window),
                nights=len(without),
                what=_sentence(without),
            )
        )
    return findings


def added(window: Window) -> list[Finding]:
    """Returns cases that appear for the first time in the latest run of a place.

    The findings are not regressions: last good and first bad are that one night.
    """
    findings = []
    for runs in _times(window).values():
        latest = max(runs.values(), key=lambda run: run.time_us)
        fresh = [series for series in latest.nights if len(window.nights[series]) == 1]
        if len(fresh) == len(latest.nights):
            continue
        for series in fresh:
            night = latest.nights[series]
            findings.append(
                Finding(
                    kind=Kind.MISSING,
                    dimensions=window.dimensions[series],
                    metric="status",
                    after=night.latency_ms,
                    last_good=occurrence(night, window),
                    first_bad=occurrence(night, window),
                    nights=1,
                    what=f"new: {night.status}",
                )
            )
    return findings


def _sentence(without: list[Run]) -> str:
    first = without[0]
    name = first.run_id or f"the run of {timestamp(first.time_us):%Y-%m-%d %H:%M}"
    count = len(without)
    return f"missing from {count} run{'' if count == 1 else 's'}, starting with {name}"


def _runs(window: Window) -> dict[str, Run]:
    members: defaultdict[str, dict[int, Night]] = defaultdict(dict)
    for series, nights in window.nights.items():
        for night in nights:
            if night.run_id:
                members[night.run_id][series] = night
    return {
        run_id: Run(run_id, max(night.time_us for night in nights.values()), nights)
        for run_id, nights in members.items()
    }


def _without(series: int, last: Night, runs: Mapping[str, Run]) -> Iterator[Run]:
    own = runs.get(last.run_id)
    companions = set(own.nights) - {series} if own else set()
    if not companions:
        return
    later = [run for run in runs.values() if run.time_us > last.time_us]
    for run in sorted(later, key=lambda run: run.time_us):
        shared = len(companions & run.nights.keys())
        if shared >= _COMPANIONS * len(companions):
            yield run


def _times(window: Window) -> dict[object, dict[tuple[str, int], Run]]:
    """Returns all runs by place; runs without an identifier are identified by their time."""
    runs_by_place: defaultdict[object, defaultdict[tuple[str, int], dict[int, Night]]]
    runs_by_place = defaultdict(lambda: defaultdict(dict))
    for series, nights in window.nights.items():
        where = place(window.dimensions[series])
        for night in nights:
            key = (night.run_id, 0 if night.run_id else night.time_us)
            runs_by_place[where][key][series] = night
    return {
        where: {
            key: Run(key[0], max(night.time_us for night in nights.values()), nights)
            for key, nights in runs.items()
        }
        for where, runs in runs_by_place.items()
    }


def _gone(nights: list[Night], elsewhere: Mapping[tuple[str, int], Run]) -> list[Run]:
    times = [night.time_us for night in nights]
    gaps = [after - before for before, after in pairwise(times)]
    # One interval between two nights does not show what is usual.
    if len(gaps) < 2:
        return []
    half = statistics.median(gaps) / 2
    later = sorted(
        (run for run in elsewhere.values() if run.time_us > times[-1] + half),
        key=lambda run: run.time_us,
    )
    # Runs within a short time count as one night.
    apart: list[Run] = []
    for run in later:
        if not apart or run.time_us - apart[-1].time_us > half:
            apart.append(run)
    return apart if len(apart) > 1 else []


def _absence(series: int, run: Run, window: Window) -> Occurrence:
    """Returns a run as an occurrence of a case that is missing from it.

    Versions come from the most similar case in it: from the same backend, if any ran.
    """
    backend = window.dimensions[series]["backend"]
    framework = window.dimensions[series]["framework"]

    def nearness(item: tuple[int, Night]) -> tuple[bool, bool]:
        names = window.dimensions[item[0]]
        return names["backend"] == backend, names["framework"] == framework

    relative, night = max(run.nights.items(), key=nearness)
    last = occurrence(night, window)
    same = window.dimensions[relative]["backend"] == backend
    return attrs.evolve(last, program="", status="missing", versions=last.versions if same else {})
