"""Findings of the history: a step, a changed status, or a missing case."""

import datetime
import enum
from collections.abc import Mapping
from typing import Any

import attrs

from comparative_benchmark.reporting.history.output import competitor
from comparative_benchmark.reporting.history.queries import Night, Window
from comparative_benchmark.reporting.history.rows import OK


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
        told = self.last_good.versions and self.first_bad.versions
        sides = [
            {
                **(side.versions if told else {}),
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
    parts = []
    for name, (old, new) in _sorted(finding):
        parts.append(f"{name} {old or 'none'} -> {new or 'none'}")
    return ", ".join(parts) or "no version is known to have changed"


def _sorted(finding: Finding) -> list[tuple[str, tuple[str | None, str | None]]]:
    # The revision last: packages matter most to compiler engineers.
    return sorted(finding.changed.items(), key=lambda item: (item[0] == "revision", item[0]))


def as_json(finding: Finding) -> dict[str, Any]:
    """Returns a finding as plain values."""
    found = {
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
        found[name] = {**attrs.asdict(side), "time": side.time.isoformat()}
    return found
