"""What the page's scripts read: all cases column by column, as JSON within the page."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from comparative_benchmark.report.changes import Changes
from comparative_benchmark.report.columns import Json, Tables, columns_of, short
from comparative_benchmark.report.ratios import Judged
from comparative_benchmark.report.roofs import Roofs, as_json, costs, peak_of
from comparative_benchmark.report.samples import dots_per_case
from comparative_benchmark.report.trends import TrendPoint
from comparative_benchmark.worker.phase_names import PHASES

# Points of trends over all cases, so that a page of thousands stays small.
_MOST_POINTS = 60_000
_FEWEST_POINTS = 5


def build(
    judged: Sequence[Judged],
    *,
    baseline: str,
    trends: Mapping[str, Sequence[TrendPoint]],
    changes: Changes | None,
) -> Json:
    """Returns the JSON value that goes into the page.

    Args:
      judged: all results.
      baseline: competitor that the comparisons are against.
      trends: of each result by its id.
      changes: since the baseline results; None without such.
    """
    tables = Tables()
    found_costs, roofs = costs(item.result for item in judged), Roofs([i.result for i in judged])
    dots = dots_per_case(len(judged))
    columns: dict[str, list[Any]] = {}
    for position, item in enumerate(judged):
        cost = found_costs.get(item.result.case.workload)
        values = columns_of(item, cost=cost, changes=changes, dots=dots, tables=tables)
        if item.interval is not None:
            values["share"] = short(roofs.share(item.result, cost, item.interval.estimate))
        if (ceilings := roofs.of(item.result)) is not None:
            values["ceilings"] = tables.ceilings.position(as_json(ceilings))
            if (peak := peak_of(item.result)) != item.result.case.data_type:
                values["peak"] = tables.text(peak)
        for name, value in values.items():
            if value is not None:
                columns.setdefault(name, [None] * len(judged))[position] = value
    kept = max(_FEWEST_POINTS, _MOST_POINTS // max(len(trends), 1))
    return {
        "baseline": baseline,
        "cases": columns,
        "count": len(judged),
        "phases": list(PHASES),
        "trends": {
            key: [_point(p, tables) for p in points[-kept:]] for key, points in trends.items()
        },
        "trend_points": kept,
        "dots_per_case": dots,
        "texts": tables.texts.values,
        "runners": tables.runners.values,
        "workloads": tables.workloads,
        "runs": tables.runs.values,
        "versions": tables.versions.values,
        "ceilings": tables.ceilings.values,
        "times": tables.times.values,
    }


def embedded(payload: Json) -> str:
    """Returns a JSON text that is safe within a script element: no `<`, and no line separators."""
    encoded = json.dumps(payload, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    for character in "<>&\u2028\u2029":
        encoded = encoded.replace(character, f"\\u{ord(character):04x}")
    # Half of a character, which a damaged file may hold, is in no encoding.
    return encoded.encode("utf-8", "backslashreplace").decode("utf-8")


def _point(point: TrendPoint, tables: Tables) -> list[Any]:
    return [
        tables.times.position(point.time.isoformat(timespec="minutes")),
        short(point.value),
        short(point.low),
        short(point.high),
        tables.versions.position(dict(point.versions)),
    ]
