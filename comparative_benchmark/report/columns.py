"""What the page knows of one case: the values of its columns, in as few bytes as will do.

Texts and other values that repeat stand once, in a table; their positions stand for them elsewhere.
"""

import json
import math
from collections.abc import Mapping
from typing import Any

import attrs

from comparative_benchmark.report.changes import Changes
from comparative_benchmark.report.inputs import Result, number, text
from comparative_benchmark.report.ratios import Judged, samples_of
from comparative_benchmark.report.roofs import Cost
from comparative_benchmark.report.samples import thin
from comparative_benchmark.results.compare_samples import (
    listed,
    mapping,
)
from comparative_benchmark.results.unchanged import program_digest
from comparative_benchmark.stats.analysis import SampleError
from comparative_benchmark.worker.phase_names import PHASES

_SIGNIFICANT = 5
_LONGEST_REASON = 4_000
_LONGEST_TRACEBACK = 8_000

Json = dict[str, Any]


class Table:
    """Values that each stand once; `position` returns where."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._positions: dict[str, int] = {}

    def position(self, value: Any) -> int:
        """Returns the position of a value, which is added where it is new."""
        key = value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)
        if key not in self._positions:
            self._positions[key] = len(self.values)
            self.values.append(value)
        return self._positions[key]


@attrs.define
class Tables:
    """Everything that cases point to."""

    texts: Table = attrs.field(factory=Table)
    runners: Table = attrs.field(factory=Table)
    workloads: list[Json] = attrs.field(factory=list)
    rows: dict[tuple[str, ...], int] = attrs.field(factory=dict)
    runs: Table = attrs.field(factory=Table)
    versions: Table = attrs.field(factory=Table)
    ceilings: Table = attrs.field(factory=Table)
    times: Table = attrs.field(factory=Table)

    def text(self, value: str | None) -> int | None:
        """Returns the position of a text; None for None."""
        return None if value is None else self.texts.position(value)


def columns_of(
    item: Judged, *, cost: Cost | None, changes: Changes | None, dots: int, tables: Tables
) -> Json:
    """Returns the values of a case by the name of their column; None where there is none.

    Args:
      item: the case.
      cost: of its workload.
      changes: since the baseline results.
      dots: how many of its samples may be drawn.
      tables: to which it adds what it points to.
    """
    return {
        **_identity(item.result, tables),
        "workload": _workload(item.result, cost, tables),
        **_latency(item, dots),
        **_comparison(item, tables),
        **_metrics(item.result, tables),
        **_failure(item.result, tables),
        **_change(item.result, changes, tables),
    }


def _identity(result: Result, tables: Tables) -> Json:
    case, definition = result.case, result.definition
    return {
        "id": result.id,
        "runner": tables.runners.position(
            {
                "competitor": case.competitor,
                "backend": str(definition.get("backend")),
                "framework": case.framework,
                "level": result.level,
            }
        ),
        "benchmark": tables.text(case.benchmark),
        "status": tables.text(case.status),
        "run": tables.runs.position(_run(result)),
        "versions": tables.versions.position({k: str(v) for k, v in case.versions.items()}),
    }


def _workload(result: Result, cost: Cost | None, tables: Tables) -> int:
    """Returns the position of the row of the matrix that a result belongs to.

    Frameworks may tag their cases differently; the row has the tags of all.
    """
    case, definition = result.case, result.definition
    device, machine, quantity = result.contest
    key = (case.workload, device, machine, quantity)
    batch_size = definition.get("batch_size")
    position = tables.rows.setdefault(key, len(tables.workloads))
    if position == len(tables.workloads):
        tables.workloads.append(
            {
                "label": case.label,
                "input": text(definition, "input_data"),
                "digest": case.workload[:16],
                "data_type": case.data_type,
                "batch_size": batch_size if isinstance(batch_size, int) else None,
                "tags": [],
                "architecture": case.architecture,
                "inputs": [str(spec) for spec in listed(mapping(definition, "workload"), "inputs")],
                "device": device,
                "machine": machine,
                "quantity": quantity,
                "cost": cost and [short(cost.flops), short(cost.bytes), tables.text(cost.source)],
            },
        )
    row = tables.workloads[position]
    row["tags"] = list(dict.fromkeys([*row["tags"], *map(str, listed(definition, "tags"))]))
    return position


def _run(result: Result) -> Json:
    run = result.run
    around = mapping(run, "execution_environment")
    return {
        "id": str(run.get("run_id") or result.case.run_id),
        "time": text(mapping(run, "trigger"), "timestamp"),
        "command": " ".join(map(str, listed(mapping(run, "trigger"), "command"))),
        "revision": text(around, "git_revision"),
        "host": {
            name: ", ".join(map(str, value)) if isinstance(value, list) else str(value)
            for name, value in mapping(around, "host").items()
            if value is not None
        },
    }


def _latency(item: Judged, most_dots: int) -> Json:
    case, interval = item.result.case, item.interval
    if interval is None:
        return {}
    try:
        processes = samples_of(case)
    except SampleError:
        return {}
    found = thin(processes, most_dots, item.result.id)
    return {
        "ms": [short(value) for value in (interval.estimate, interval.low, interval.high)],
        "processes": interval.processes,
        "dots": found and list(found.processes),
        "range": found and [short(found.low_ms), short(found.high_ms)],
        "samples": found and found.samples,
        "shown": found and found.shown,
        **{
            name: short(number(case.metrics, f"{name}_latency_ms"))
            for name in ("median", "mad", "p90", "p95", "p99")
        },
    }


def _comparison(item: Judged, tables: Tables) -> Json:
    comparison = item.comparison
    if comparison is None:
        return {"verdict": tables.text("baseline")}
    ratio = comparison.ratio
    return {
        "verdict": tables.text(comparison.verdict.value if ratio else comparison.fate.value),
        "why": tables.text(comparison.reason[:_LONGEST_REASON]),
        "paired": int(comparison.paired) or None,
        # As speed-up: baseline / candidate.
        "speedup": ratio
        and [
            short(1 / ratio.estimate),
            short(1 / ratio.high),
            short(1 / ratio.low if ratio.low else None),
        ],
    }


def _metrics(result: Result, tables: Tables) -> Json:
    metrics = result.case.metrics
    compiled, program = mapping(metrics, "compile"), mapping(metrics, "program")
    verified = mapping(metrics, "final_verification") or mapping(metrics, "verification")
    phases = mapping(metrics, "phases")
    contention = mapping(metrics, "contention")
    digest = program_digest(metrics)
    return {
        "cold": _times(compiled, "cold_ms") or _wrapped(short(number(metrics, "compile_time_ms"))),
        "warm": _times(compiled, "warm_ms"),
        "phase_ms": [_phase(phases.get(name)) for name in PHASES] if phases else None,
        "host_mb": short(number(metrics, "host_memory_peak_mb")),
        "device_mb": short(number(metrics, "device_memory_peak_mb")),
        "error": short(number(verified, "relative_rmse")),
        "reference_error": short(number(verified, "reference_relative_rmse")),
        "allowed_error": short(number(verified, "allowed_relative_rmse")),
        "sqnr": short(number(verified, "sqnr_db")),
        "max_error": short(number(verified, "max_abs_error")),
        "weights": tables.text(text(program, "weights")),
        "program": digest and digest[:12],
        "program_bytes": short(number(program, "artifact_size_bytes")),
        "stop": tables.text(text(metrics, "stop_reason")),
        "contended": _flag(contention.get("contended")),
        "contention": tables.text("; ".join(map(str, listed(contention, "reasons"))) or None),
    }


def _failure(result: Result, tables: Tables) -> Json:
    if result.case.status == "ok":
        return {}
    record = result.record
    traceback = text(record, "traceback")
    return {
        "phase": tables.text(text(record, "phase")),
        "reason": tables.text((text(record, "reason") or "no reason told")[:_LONGEST_REASON]),
        "traceback": tables.text(traceback[-_LONGEST_TRACEBACK:] if traceback else None),
        "log": tables.text(text(record, "log_file")),
    }


def _change(result: Result, changes: Changes | None, tables: Tables) -> Json:
    comparison = changes.by_id.get(result.id) if changes else None
    if comparison is None:
        return {}
    ratio, old = comparison.ratio, comparison.baseline_ms
    return {
        "change": ratio and [short(v) for v in (ratio.estimate, ratio.low, ratio.high)],
        "change_verdict": tables.text(comparison.verdict.value if ratio else comparison.fate.value),
        "change_why": tables.text(comparison.reason[:_LONGEST_REASON]),
        "old_ms": old and [short(v) for v in (old.estimate, old.low, old.high)],
    }


def _phase(phase: Any) -> float | str | None:
    if isinstance(phase, str):
        return phase
    return short(number(phase, "ms")) if isinstance(phase, Mapping) else None


def _times(holder: Mapping[str, Any], name: str) -> list[float] | None:
    known = [number({"_": value}, "_") for value in listed(holder, name)]
    return [found for value in known if (found := short(value)) is not None] or None


def _wrapped(value: float | None) -> list[float] | None:
    return None if value is None else [value]


def short(value: float | None) -> float | None:
    """Returns a number with as many digits as a page can show; None for what is none."""
    if value is None or not math.isfinite(value):
        return None
    if value == 0:
        return 0
    found = float(f"{value:.{_SIGNIFICANT}g}")
    return int(found) if found.is_integer() and abs(found) < 1e15 else found


def _flag(value: Any) -> int | None:
    return int(value) if isinstance(value, bool) else None
