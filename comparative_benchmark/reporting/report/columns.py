"""The values of one case on the page, in a compact encoding.

Texts and other repeated values are stored once in a table, and referenced by position.
"""

import json
import math
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
from msgspec import UNSET, UnsetType

from comparative_benchmark.analysis.stats.analysis import Interval
from comparative_benchmark.engine.worker.phases import PHASES
from comparative_benchmark.reporting.report.inputs import ReportCase
from comparative_benchmark.reporting.report.standings import Judged
from comparative_benchmark.reporting.report.trends import Changes
from comparative_benchmark.results.case import UNKNOWN
from comparative_benchmark.results.comparing.comparison import Comparison, samples_of
from comparative_benchmark.results.comparing.noise_floor import program_digest
from comparative_benchmark.results.comparing.plot_data import selection_of
from comparative_benchmark.results.comparing.roofs import Cost
from comparative_benchmark.results.record import Phase, Status
from comparative_benchmark.results.results_file import plain
from comparative_benchmark.terminal.subjects import rerun_command

# Twelve bits per dot, finer than a screen: two of these digits.
DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
STEPS = len(DIGITS) ** 2 - 1
_CODES = np.frombuffer(DIGITS.encode("ascii"), dtype=np.uint8)
MOST_DOTS = 200
_FEWEST_DOTS = 20
# Limit over all cases of a page.
_BUDGET = 1_000_000


@attrs.frozen(kw_only=True)
class Dots:
    """Samples for a plot.

    Attributes:
      low_ms, high_ms: the smallest and the largest of all samples.
      processes: the dots of each process, two `DIGITS` per dot: the position on a logarithmic scale
        from `low_ms` (0) to `high_ms` (`STEPS`).
      shown: number of dots, out of `samples`.
    """

    low_ms: float
    high_ms: float
    processes: Sequence[str]
    shown: int
    samples: int


def dots_per_case(cases: int) -> int:
    """Returns the maximum number of dots per case for a number of cases."""
    return max(_FEWEST_DOTS, min(MOST_DOTS, _BUDGET // max(cases, 1)))


def thin(processes: Sequence[Sequence[float]], most: int, seed: str) -> Dots:
    """Returns at most about `most` dots, in the order of the samples.

    Each process keeps its share of them, chosen at random, and always its fastest and slowest
    sample. So the dots show the true range, but not the frequency of the tails.

    Args:
      processes: latencies in ms of each process, all positive; at least one in all.
      most: maximum number of dots.
      seed: seed of the choice; constant per case, so that a page is reproducible.
    """
    everything = [value for values in processes for value in values]
    total = len(everything)
    low, high = min(everything), max(everything)
    chooser = random.Random(seed)  # noqa: S311  # a choice that can be made again, no secret
    chosen = [
        _chosen(values, max(2, round(most * len(values) / total)), chooser) for values in processes
    ]
    scale = STEPS / math.log(high / low) if high > low else 0.0
    return Dots(
        low_ms=low,
        high_ms=high,
        processes=[_digits(values, low, scale) for values in chosen],
        shown=sum(map(len, chosen)),
        samples=total,
    )


def _chosen(values: Sequence[float], count: int, chooser: random.Random) -> list[float]:
    if len(values) <= count:
        return list(values)
    ends = {values.index(min(values)), values.index(max(values))}
    others = [position for position in range(len(values)) if position not in ends]
    positions = ends | set(chooser.sample(others, count - len(ends)))
    return [values[position] for position in sorted(positions)]


def _digits(values: Sequence[float], low: float, scale: float) -> str:
    steps = np.rint(np.log(np.asarray(values, dtype=np.float64) / low) * scale).astype(np.int64)
    pairs = np.stack(np.divmod(steps, len(DIGITS)), axis=1)
    text: str = _CODES[pairs].tobytes().decode("ascii")
    return text


# Names of the parts of `ReportCase.contest`.
CONTEST = ("device", "machine", "quantity")
_SIGNIFICANT = 5
_LONGEST_REASON = 4_000
_LONGEST_TRACEBACK = 8_000

Json = dict[str, Any]


class Table:
    """A table of unique values; `position` returns the index of a value."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._positions: dict[str, int] = {}

    def position(self, value: Any) -> int:
        """Returns the index of a value, adding it if it is new."""
        key = value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)
        if key not in self._positions:
            self._positions[key] = len(self.values)
            self.values.append(value)
        return self._positions[key]


@attrs.define
class Tables:
    """The tables that cases refer to."""

    texts: Table = attrs.field(factory=Table)
    runners: Table = attrs.field(factory=Table)
    workloads: list[Json] = attrs.field(factory=list)
    rows: dict[tuple[str, ...], int] = attrs.field(factory=dict)
    runs: Table = attrs.field(factory=Table)
    versions: Table = attrs.field(factory=Table)
    ceilings: Table = attrs.field(factory=Table)
    profiles: Table = attrs.field(factory=Table)
    explained: Table = attrs.field(factory=Table)
    times: Table = attrs.field(factory=Table)

    def text(self, value: str | None) -> int | None:
        """Returns the index of a text; None for None."""
        return None if value is None else self.texts.position(value)


def columns_of(
    item: Judged, *, cost: Cost | None, changes: Changes | None, dots: int, tables: Tables
) -> Json:
    """Returns the values of a case by column; None for missing values.

    Args:
      item: the case.
      cost: cost of its workload.
      changes: changes since the baseline results.
      dots: maximum number of its samples to draw.
      tables: tables to which referenced values are added.
    """
    case = item.case
    return {
        **_identity(case, tables),
        "workload": _workload(case, cost, tables),
        **_latency(item, dots),
        **_rate(case, tables),
        **_comparison(item.comparison, tables),
        **_metrics(case, tables),
        **_failure(case, tables),
        **_change(changes.by_id.get(case.id) if changes else None, tables),
    }


def _identity(case: ReportCase, tables: Tables) -> Json:
    return {
        "id": case.id,
        "runner": tables.runners.position(
            {
                "competitor": case.competitor,
                "backend": case.result.definition.backend,
                "framework": case.framework,
                "level": case.result.level,
            }
        ),
        "benchmark": tables.text(case.result.definition.benchmark_name),
        "status": tables.text(case.result.word),
        "run": tables.runs.position(_run(case)),
        "versions": tables.versions.position(case.result.versions),
        "again": tables.text(_again(case)),
    }


def _again(case: ReportCase) -> str | None:
    """Returns the command that runs a case again, unless `static/6-detail.js` derives it."""
    definition, operator = case.result.definition, selection_of(case.result)
    derived = f"cbs {'micro run' if operator else 'run'} --backend {definition.backend}:"
    derived += f"{definition.compiler} {operator or f'-name {definition.benchmark_name}'} "
    derived += f"-device {case.device} -o again.json"
    command = rerun_command(case.result)
    return None if command == derived else command


def _workload(case: ReportCase, cost: Cost | None, tables: Tables) -> int:
    """Returns the index of the matrix row of a case.

    Frameworks may tag their cases differently; the row has the tags of all.
    """
    definition = case.result.definition
    position = tables.rows.setdefault((case.workload, *case.contest), len(tables.workloads))
    if position == len(tables.workloads):
        tables.workloads.append(
            {
                "label": case.label,
                "input": definition.input_data,
                "digest": case.workload[:16],
                # Recipes compute in others.
                "data_type": definition.data_type or definition.workload.data_type or UNKNOWN,
                "batch_size": definition.batch_size,
                "tags": [],
                "architecture": definition.workload.architecture,
                "inputs": definition.workload.inputs,
                **dict(zip(CONTEST, case.contest, strict=True)),
                "micro": selection_of(case.result),
                "cost": cost and [short(cost.flops), short(cost.bytes), tables.text(cost.source)],
            }
        )
    row = tables.workloads[position]
    row["tags"] = list(dict.fromkeys([*row["tags"], *definition.tags]))
    return position


def _run(case: ReportCase) -> Json:
    run = case.run
    if run is None:
        return {"id": case.result.run_id, "time": None, "host": {}}
    around = run.execution_environment
    return {
        "id": run.run_id,
        "time": run.trigger.timestamp,
        "command": " ".join(run.trigger.command),
        "revision": around.git_revision,
        "host": {
            name: ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
            for name, value in plain(around.host).items()
            if value is not None
        },
    }


def _latency(item: Judged, most_dots: int) -> Json:
    interval = item.interval
    if interval is None:
        return {}
    dots = thin(samples_of(item.case.metrics), most_dots, item.case.id)
    return {
        "ms": ends(interval),
        "processes": interval.processes,
        "dots": dots.processes,
        "range": [short(dots.low_ms), short(dots.high_ms)],
        "samples": dots.samples,
        "shown": dots.shown,
        **{
            name: short(getattr(item.case.metrics, f"{name}_latency_ms"))
            for name in ("median", "mad", "p90", "p95", "p99")
        },
    }


def _rate(case: ReportCase, tables: Tables) -> Json:
    rates = case.metrics.throughput
    if not rates:
        return {}
    limits = rates.rate_interval
    low, high = (limits.low, limits.high) if limits else (None, None)
    return {
        "units": tables.text(rates.units),
        "rate": rates.rate and [short(value) for value in (rates.rate, low, high)],
        "losses": next(([short(v) for v in p.losses] for p in rates.processes if p.losses), None),
        "jobs": [
            [tables.text(p.tag), p.replicate, len(p.rates), p.warmup, len(p.cpus)]
            for p in rates.processes
        ],
    }


def _comparison(comparison: Comparison | None, tables: Tables) -> Json:
    if comparison is None:
        return {"verdict": tables.text("baseline")}
    ratio = comparison.ratio
    return {
        "verdict": tables.text(_verdict(comparison)),
        "why": tables.text(comparison.reason[:_LONGEST_REASON]),
        "paired": int(comparison.paired) or None,
        "arithmetic": int(bool(comparison.arithmetic)) or None,
        "disturbed": int(comparison.disturbed) or None,
        # As speed-up: baseline / candidate.
        "speedup": ratio and ends(ratio.inverse),
        "replicates": ratio and ratio.processes,
        # Of the logarithm, for means over cases.
        "spread": comparison.log_ratio and [short(part) for part in comparison.log_ratio.spread],
    }


def _metrics(case: ReportCase, tables: Tables) -> Json:
    metrics = case.metrics
    compiled, verdict = metrics.compile or None, metrics.verdict
    contention, digest = metrics.contention or None, program_digest(metrics)
    cold = _times(compiled.cold_ms) if compiled else None
    return {
        "cold": cold or _times([metrics.compile_time_ms]),
        "warm": _times(compiled.warm_ms) if compiled else None,
        "phase_ms": [_phase(metrics.phases.get(name)) for name in PHASES]
        if metrics.phases
        else None,
        "host_mb": short(metrics.host_memory_peak_mb),
        "device_mb": short(metrics.device_memory_peak_mb),
        "error": verdict and short(verdict.relative_rmse),
        "reference_error": verdict and short(verdict.reference_relative_rmse),
        "allowed_error": verdict and short(verdict.allowed_relative_rmse),
        "sqnr": verdict and short(verdict.sqnr_db),
        "judged": tables.text(verdict.judged if verdict else None),
        "max_error": verdict and short(verdict.max_abs_error),
        "unranked": int(metrics.not_ranked is not UNSET or case.is_recipe) or None,
        "weights": tables.text(metrics.program.weights),
        "program": digest and digest[:12],
        "program_bytes": short(metrics.program.artifact_size_bytes),
        "recipe": _recipe(metrics.program.notes.get("recipe")),
        "stop": tables.text(metrics.stop_reason),
        # 1 or 0.
        "contended": contention and short(contention.contended),
        "contention": tables.text("; ".join(contention.reasons) or None) if contention else None,
    }


def _recipe(applied: Any) -> list[float | None] | None:
    """Returns a recipe's effect: weight bytes before and after, layers changed and in total."""
    if not isinstance(applied, Mapping):
        return None
    effect = [applied.get(name) for name in ("bytes_before", "bytes_after", "layers", "linear")]
    return [short(value) if isinstance(value, int | float) else None for value in effect]


def _failure(case: ReportCase, tables: Tables) -> Json:
    if case.status is Status.OK:
        return {}
    result = case.result
    return {
        "phase": tables.text(result.phase or None),
        "reason": tables.text((result.reason or "")[:_LONGEST_REASON]),
        "traceback": tables.text((result.traceback or "")[-_LONGEST_TRACEBACK:] or None),
        "log": tables.text(result.log_file),
    }


def _change(comparison: Comparison | None, tables: Tables) -> Json:
    if comparison is None:
        return {}
    return {
        "change": comparison.ratio and ends(comparison.ratio),
        "change_replicates": comparison.ratio and comparison.ratio.processes,
        "change_verdict": tables.text(_verdict(comparison)),
        "change_why": tables.text(comparison.reason[:_LONGEST_REASON]),
        "old_ms": comparison.baseline_ms and ends(comparison.baseline_ms),
    }


def _verdict(comparison: Comparison) -> str:
    return comparison.verdict.value if comparison.ratio else comparison.fate.value


def ends(interval: Interval) -> list[float | None]:
    """Returns estimate, lower and upper limit; None for a limit that samples do not support."""
    return [short(value) for value in (interval.estimate, interval.low, interval.high)]


def _phase(phase: Phase | str | None) -> float | str | None:
    return short(phase.ms) if isinstance(phase, Phase) else phase


def _times(values: Iterable[float | None]) -> list[float] | None:
    return [number for value in values if (number := short(value)) is not None] or None


def short(value: float | UnsetType | None) -> float | None:
    """Returns a number with the digits that a page can show; None for anything else."""
    if value is None or isinstance(value, UnsetType) or not math.isfinite(value):
        return None
    if value == 0:
        return 0
    number = float(f"{value:.{_SIGNIFICANT}g}")
    return int(number) if number.is_integer() and abs(number) < 1e15 else number
