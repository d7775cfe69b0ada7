"""The page: one file that needs no network, and runs no code from results files.

Jinja escapes all text; data are JSON without `<`; scripts create elements, never HTML. Only the
scripts and styles of this package may run: their digests are in the security policy. The data have
all cases column by column. A point of a plot is the index of its case; plots over shapes and of
recipes add only lines, means, and speed-ups over a recipe's own stack.
"""

import base64
import datetime
import hashlib
import json
import math
import re
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from comparative_benchmark.analysis.roofline.ceilings import Ceilings, load_ceilings
from comparative_benchmark.analysis.stats.analysis import (
    CLOSE,
    CLOSE_VERDICT_PROCESSES,
    MIN_PROCESSES,
    WITHIN_ONE_PROCESS,
    ratio_probability,
)
from comparative_benchmark.engine.worker.phases import PHASES
from comparative_benchmark.reporting.history.rows import TrendPoint
from comparative_benchmark.reporting.report import wording
from comparative_benchmark.reporting.report.columns import (
    CONTEST,
    Json,
    Tables,
    columns_of,
    dots_per_case,
    ends,
    short,
)
from comparative_benchmark.reporting.report.details import Explained, Profiles, script_rows
from comparative_benchmark.reporting.report.inputs import ReportCase
from comparative_benchmark.reporting.report.standings import Contest, Judged
from comparative_benchmark.reporting.report.summary import Summary
from comparative_benchmark.results.case import LATENCY
from comparative_benchmark.results.comparing import plot_data
from comparative_benchmark.results.comparing.comparison import (
    COMPILE_THRESHOLD,
    MOST_DISTURBED,
    Comparison,
)
from comparative_benchmark.results.comparing.plot_data import Mean, Trade, operator_of
from comparative_benchmark.results.comparing.roofs import Roofs, peak_type
from comparative_benchmark.terminal.run_summary import apart_from_batch, by_batch


def over_shapes_of(judged: Sequence[Judged]) -> list[Json]:
    """Returns a panel for each operator and type: points by competitor, and missing cases."""
    at = {id(item.case): position for position, item in enumerate(judged)}
    panels = plot_data.shape_panels((item.case, item.comparison) for item in judged)
    return [
        {
            "name": panel.name,
            **_where(panel),
            "axis": panel.axis,
            "series": [
                [
                    name,
                    [[at[id(point.case)], point.at] for point in points],
                    [[place, short(mean)] for place, mean in plot_data.line(points)],
                ]
                for name, points in panel.series.items()
            ],
            "left_out": [at[id(case)] for case in panel.left_out],
        }
        for panel in panels
    ]


def batches_of(judged: Sequence[Judged]) -> list[Json]:
    """Returns a panel for each model with several batch sizes: its cases, and the best choice."""
    groups: defaultdict[Hashable, list[int]] = defaultdict(list)
    for position, item in enumerate(judged):
        case = item.case
        definition = case.result.definition
        timed = item.interval and case.quantity == LATENCY
        if definition.batch_size and timed and not operator_of(case.result):
            groups[apart_from_batch(case), definition.input_data, case.contest].append(position)
    return [
        panel
        for positions in groups.values()
        if (panel := _batch_panel([judged[p].case for p in positions], positions))
    ]


def _batch_panel(cases: Sequence[ReportCase], positions: Sequence[int]) -> Json | None:
    if len({case.result.definition.batch_size for case in cases}) < 2:
        return None
    return {
        "name": _without_batch(cases[0]),
        **dict(zip(CONTEST, cases[0].contest, strict=True)),
        "cases": list(positions),
        "choice": by_batch(cases),
    }


def _without_batch(case: ReportCase) -> str:
    """Returns a case's label with its batch size replaced by `N`."""
    return re.sub(rf"-{case.result.definition.batch_size}(?=x)", "-N", case.label, count=1)


def fewer_bits_of(judged: Sequence[Judged], *, threshold: float, tables: Tables) -> list[Json]:
    """Returns a panel for each model or operator that was measured with a recipe."""
    at = {id(item.case): position for position, item in enumerate(judged)}
    panels = plot_data.recipe_panels((item.case for item in judged), threshold=threshold)
    return [_bits_panel(panel, at, tables) for panel in panels]


def _bits_panel(panel: plot_data.RecipePanel, at: Mapping[int, int], tables: Tables) -> Json:
    stacks = list(dict.fromkeys(trade.stack for trade in panel.trades))
    shapes: dict[str, list[Trade]] = {}
    for trade in panel.trades:
        shapes.setdefault(trade.case.label, []).append(trade)
    ahead = _ahead(panel.means)
    return {
        "name": panel.name,
        **_where(panel),
        "stacks": stacks,
        "shapes": [
            {"label": label, "trades": _trades(trades, stacks, at, tables)}
            for label, trades in shapes.items()
        ],
        "means": [
            {
                "recipe": mean.recipe,
                "stack": stacks.index(mean.stack),
                "speedup": ends(mean.speedup),
                "replicates": mean.ratio.processes,
                "verdict": mean.verdict.value,
                "signal": short(mean.sqnr_db),
                "shapes": mean.shapes,
                "front": id(mean) in ahead,
            }
            for mean in panel.means
        ],
    }


def _trades(
    trades: Sequence[Trade], stacks: Sequence[str], at: Mapping[int, int], tables: Tables
) -> list[Json]:
    ahead = _ahead(trades)
    return [
        {
            "case": at[id(trade.case)],
            "own": at[id(trade.own)] if trade.own else None,
            "recipe": trade.recipe,
            "stack": stacks.index(trade.stack),
            "why": tables.text(trade.why or None),
            "front": id(trade) in ahead,
            **(_ratio(trade.comparison) if trade.comparison and trade.speedup else {}),
        }
        for trade in trades
    ]


def _ratio(comparison: Comparison) -> Json:
    assert comparison.ratio is not None
    return {
        "speedup": ends(comparison.ratio.inverse),
        "replicates": comparison.ratio.processes,
        "verdict": comparison.verdict.value,
    }


def _ahead(items: Sequence[Trade] | Sequence[Mean]) -> set[int]:
    """Returns which items are on the frontier of their stack."""
    return {id(item) for front in plot_data.fronts(items).values() for item in front}


def _where(panel: plot_data.ShapePanel | plot_data.RecipePanel) -> Json:
    return {"device": panel.device, "machine": panel.machine, "quantity": panel.quantity}


# Limits points of trends over all cases, so that a page of thousands of cases stays small.
_MOST_POINTS = 60_000
_FEWEST_POINTS = 5


def build(summary: Summary, page: Path | None = None) -> Json:
    """Returns the JSON value that goes into the page.

    Args:
      summary: content of the page.
      page: path of the future page, for links to profiles; None for no links.
    """
    tables, profiles = Tables(), Profiles(summary.inputs.folders, page)
    judged, trends = summary.judged, summary.trends
    explained = Explained([item.case for item in judged], summary.inputs.folders)
    roofs = Roofs([item.case.result for item in judged])
    kept_ceilings = cache(load_ceilings)
    dots = dots_per_case(len(judged))
    columns: dict[str, list[Any]] = {}
    for position, item in enumerate(judged):
        case, result = item.case, item.case.result
        cost = roofs.cost(result)
        values = columns_of(item, cost=cost, changes=summary.changes, dots=dots, tables=tables)
        ceilings, place, host = None, roofs.place(result), case.host
        if place and host and (place.gpu or host.cpu_model):
            ceilings = kept_ceilings(host.threads, host.cpu_model, gpu=place.gpu)
            if ceilings is not None:
                values["ceilings"] = tables.ceilings.position(as_json(ceilings))
                row = tables.workloads[values["workload"]]
                if (peak := peak_type(result)) != row["data_type"]:
                    values["peak"] = tables.text(peak)
                if item.interval is not None and case.quantity == LATENCY:
                    values["share"] = short(roofs.share(result, item.interval.estimate, ceilings))
        if (explanation := explained.of(case, ceilings)) is not None:
            values["explained"] = tables.explained.position(explanation)
        if (profile := profiles.of(result)) is not None:
            values["profile"] = tables.profiles.position(profile)
        for name, value in values.items():
            if value is not None:
                columns.setdefault(name, [None] * len(judged))[position] = value
    limit = max(_FEWEST_POINTS, _MOST_POINTS // max(len(trends), 1))
    return {
        "baseline": summary.baseline,
        "probability": ratio_probability(),
        "min_processes": MIN_PROCESSES,
        # For means over filtered cases, see `standings.geomean`.
        "doubt": [
            *(MOST_DISTURBED, summary.threshold, max(summary.threshold, COMPILE_THRESHOLD)),
            *(CLOSE, CLOSE_VERDICT_PROCESSES),
        ],
        "within_one_process": WITHIN_ONE_PROCESS,
        "cases": columns,
        "count": len(judged),
        "phases": list(PHASES),
        "sweeps": over_shapes_of(judged),
        "batches": batches_of(judged),
        "bits": fewer_bits_of(judged, threshold=summary.threshold, tables=tables),
        "trends": {
            key: [_point(p, tables) for p in points[-limit:]] for key, points in trends.items()
        },
        "trend_points": limit,
        "dots_per_case": dots,
        "texts": tables.texts.values,
        "runners": tables.runners.values,
        "workloads": tables.workloads,
        "runs": tables.runs.values,
        "versions": tables.versions.values,
        "ceilings": tables.ceilings.values,
        "profiles": tables.profiles.values,
        "explained": tables.explained.values,
        "times": tables.times.values,
    }


def as_json(ceilings: Ceilings) -> Json:
    """Returns peaks in GFLOP/s by data type and bandwidth in GB/s, for the plot."""
    peaks = {gemm.data_type: ceilings.best_gemm(gemm.data_type) for gemm in ceilings.gemms}
    copy = ceilings.best_copy()
    return {
        "peaks": {name: gemm.gflops for name, gemm in peaks.items() if gemm},
        "bandwidth": copy.gb_per_s if copy else None,
        "threads": ceilings.threads,
        "gpu": ceilings.gpu,
        "date": ceilings.date,
        "contended": ceilings.contended,
    }


def embedded(payload: Json) -> str:
    """Returns JSON text that is safe within a script element: no `<`, and no line separators."""
    encoded = json.dumps(payload, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    for character in "<>&\u2028\u2029":
        encoded = encoded.replace(character, f"\\u{ord(character):04x}")
    return encoded


def _point(point: TrendPoint, tables: Tables) -> list[Any]:
    return [
        tables.times.position(point.time.isoformat(timespec="minutes")),
        short(point.value),
        short(point.low),
        short(point.high),
        tables.versions.position(dict(point.versions)),
    ]


_FOLDER = Path(__file__).parent
# Items of a list on the first screen; the matrix has the rest.
MOST_LISTED = 5
# URL parameters, as in `static/2-state.js`, with their display names.
FILTERS = {
    "framework": "Framework",
    "backend": "Backend",
    "dtype": "Type",
    "batch": "Batch",
    "tag": "Tag",
    "device": "Device",
    "status": "Status or verdict",
}


def render(
    summary: Summary, *, title: str, made: datetime.datetime, path: Path | None = None
) -> str:
    """Returns the HTML text.

    Args:
      summary: content of the page.
      title: heading of the page.
      made: time of the report.
      path: path of the future page, for links to profiles; None for no links.
    """
    script = "\n".join(
        path.read_text(encoding="utf-8") for path in sorted((_FOLDER / "static").glob("*.js"))
    )
    style = (_FOLDER / "static" / "page.css").read_text(encoding="utf-8")
    data = build(summary, path)
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_FOLDER / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {
        "w": wording,
        "forest": _forest,
        "most": MOST_LISTED,
        "FILTERS": FILTERS,
    }
    return environment.get_template("page.html").render(
        title=title,
        made=made.strftime("%d %b %Y, %H:%M UTC"),
        s=summary,
        machines=_machines(summary),
        policy=_policy(script, style),
        # our own script with its digest, or JSON without `<`
        script=Markup(script),  # noqa: S704
        style=Markup(style),  # noqa: S704
        data=Markup(embedded(data)),  # noqa: S704
        dots=data["dots_per_case"],
        sweeps=bool(data["sweeps"]),
        bits=bool(data["bits"]),
        batches=bool(data["batches"]),
        scripts=script_rows(summary.inputs.cases),
    )


def _policy(script: str, style: str) -> str:
    digests = [
        base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        for text in (script, style)
    ]
    return (
        f"default-src 'none'; script-src 'sha256-{digests[0]}'; style-src 'sha256-{digests[1]}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def _machines(summary: Summary) -> list[str]:
    sources = (
        f"{case.machine}, threads: {case.threads}" if case.threads else case.machine
        for case in summary.inputs.cases
    )
    return list(dict.fromkeys(sources))


def _forest(contest: Contest) -> dict[str, Any]:
    """Returns the position of each mean on a logarithmic axis, in percent of its width."""
    means = {
        standing.name: mean
        for standing in contest.standings
        if (mean := standing.mean) and not standing.is_baseline
    }
    ends = [1.0]
    for mean in means.values():
        limits = (mean.estimate, mean.low, mean.high)
        ends += [end for end in limits if 0 < end < math.inf]
    low, high = min(ends) / 1.1, max(ends) * 1.1

    def place(value: float) -> str:
        share = math.log(value / low) / math.log(high / low) if 0 < value < math.inf else value > 0
        return f"{100 * min(1.0, max(0.0, float(share))):.2f}%"

    return {
        "one": place(1.0),
        "places": {
            name: (place(mean.low), place(mean.estimate), place(mean.high), mean.side)
            for name, mean in means.items()
        },
    }
