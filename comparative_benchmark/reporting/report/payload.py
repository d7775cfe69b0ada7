"""Data for the page's scripts: all cases column by column, as JSON within the page."""

import json
from functools import cache
from pathlib import Path
from typing import Any

from comparative_benchmark.analysis.roofline.ceilings import Ceilings, load_ceilings
from comparative_benchmark.analysis.stats.analysis import (
    MIN_PROCESSES,
    WITHIN_ONE_PROCESS,
    ratio_probability,
)
from comparative_benchmark.engine.worker.phases import PHASES
from comparative_benchmark.reporting.report.columns import (
    Json,
    Tables,
    columns_of,
    dots_per_case,
    short,
)
from comparative_benchmark.reporting.report.details import Explained, Profiles
from comparative_benchmark.reporting.report.summary import Summary
from comparative_benchmark.reporting.report.sweeps import fewer_bits_of, over_shapes_of
from comparative_benchmark.reporting.report.trends import TrendPoint
from comparative_benchmark.results.insights.roofs import Roofs, peak_type

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
                if (peak := peak_type(result)) != case.data_type:
                    values["peak"] = tables.text(peak)
                if item.interval is not None:
                    values["share"] = short(roofs.share(result, item.interval.estimate, ceilings))
        if (explanation := explained.of(case, ceilings)) is not None:
            values["explained"] = tables.explained.position(explanation)
        if (profile := profiles.of(result)) is not None:
            values["profile"] = tables.profiles.position(profile)
        for name, value in values.items():
            if value is not None:
                columns.setdefault(name, [None] * len(judged))[position] = value
    kept = max(_FEWEST_POINTS, _MOST_POINTS // max(len(trends), 1))
    return {
        "baseline": summary.baseline,
        "probability": ratio_probability(),
        "min_processes": MIN_PROCESSES,
        "within_one_process": WITHIN_ONE_PROCESS,
        "cases": columns,
        "count": len(judged),
        "phases": list(PHASES),
        "sweeps": over_shapes_of(judged),
        "bits": fewer_bits_of(judged, threshold=summary.threshold, tables=tables),
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
