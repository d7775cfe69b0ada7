"""Rows of results and comparisons, for data frames and notebooks."""

import functools
import json
import statistics
from collections.abc import Callable, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from comparative_benchmark.analysis.stats.analysis import latency_interval
from comparative_benchmark.results.case import Case, latest
from comparative_benchmark.results.comparing.compare import compare_to_baseline
from comparative_benchmark.results.comparing.comparison import Comparison

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

Row = dict[str, Any]
RESULT_COLUMNS = (
    *("case", "workload", "framework", "competitor", "device", "batch_size", "status", "reason"),
    *("latency_ms", "latency_low_ms", "latency_high_ms", "processes", "compile_ms"),
    *("warm_compile_ms", "host_memory_peak_mb", "device_memory_peak_mb", "relative_rmse"),
    *("accuracy", "verdict", "machine", "started", "run_id"),
)
COMPARISON_COLUMNS = (
    *("workload", "competitor", "framework", "device", "quantity", "verdict", "baseline_ms"),
    *("candidate_ms", "ratio", "ratio_low", "ratio_high", "level", "processes", "paired"),
    *("p_value", "reason"),
)


class Table:
    """Rows with the same columns; may be empty."""

    def __init__(self, columns: Sequence[str], rows: Callable[[], list[Row]]) -> None:
        """Creates a table from column names and a function that computes the rows on access."""
        self.columns = columns
        self._make_rows = rows

    @functools.cached_property
    def rows(self) -> list[Row]:
        """One dict per row, with all columns."""
        return self._make_rows()

    def to_arrow(self) -> "pa.Table":
        """Returns an Arrow table; needs pyarrow."""
        import pyarrow as pa

        return pa.table({name: [row[name] for row in self.rows] for name in self.columns})

    def to_pandas(self) -> "pd.DataFrame":
        """Returns a data frame; needs pandas."""
        import pandas as pd

        return pd.DataFrame(self.rows, columns=self.columns)


def result_rows(cases: Sequence[Case], baseline: str | None) -> list[Row]:
    """Returns the row of each result, with its verdict relative to the baseline competitor.

    The verdict is None without a baseline, for the baseline, and for older results of a case.
    """
    compared = compare_to_baseline(cases, baseline) if baseline else []
    verdicts = {
        (item.workload, item.device, item.quantity, item.competitor, item.framework): item.verdict
        for item in compared
    }
    newest = set(map(id, latest(cases)))
    rows = []
    for case in cases:
        key = (case.workload, case.device, case.quantity, case.competitor, case.framework)
        verdict = verdicts.get(key) if id(case) in newest else None
        rows.append(result_row(case) | {"verdict": verdict and verdict.value})
    return rows


def result_row(case: Case) -> Row:
    """Returns the figures of a result by column, without the verdict; None if missing."""
    metrics, verdict = case.metrics, case.metrics.verdict
    samples = [process.latencies_ms for process in metrics.processes or ()]
    interval = latency_interval(samples) if len(samples) > 1 else None
    warm = metrics.warm_compile_time_ms
    return {
        "case": case.result.definition.benchmark_name,
        "workload": case.label,
        "framework": case.framework,
        "competitor": case.competitor,
        "device": case.device,
        "batch_size": case.result.definition.batch_size,
        "status": case.result.word,
        "reason": case.result.reason or None,
        "latency_ms": metrics.median_ms,
        "latency_low_ms": interval.low if interval else None,
        "latency_high_ms": interval.high if interval else None,
        "processes": len(metrics.processes or ()),
        "compile_ms": metrics.compile_time_ms,
        "warm_compile_ms": statistics.median(warm) if warm else None,
        "host_memory_peak_mb": metrics.host_memory_peak_mb,
        "device_memory_peak_mb": metrics.device_memory_peak_mb,
        "relative_rmse": verdict.relative_rmse if verdict else None,
        "accuracy": metrics.accuracy.value if metrics.accuracy else None,
        "verdict": None,
        "machine": case.machine,
        "started": case.started,
        "run_id": case.result.run_id,
    }


def comparison_row(item: Comparison) -> Row:
    """Returns the columns of a comparison; None for missing values."""
    ratio, before, after = item.ratio, item.baseline_ms, item.candidate_ms
    return {
        "workload": item.label,
        "competitor": item.competitor,
        "framework": item.framework,
        "device": item.device,
        "quantity": item.quantity,
        "verdict": item.verdict.value,
        "baseline_ms": before.estimate if before else None,
        "candidate_ms": after.estimate if after else None,
        "ratio": ratio.estimate if ratio else None,
        "ratio_low": ratio.low if ratio else None,
        "ratio_high": ratio.high if ratio else None,
        "level": ratio.level if ratio else None,
        "processes": ratio.processes if ratio else None,
        "paired": item.paired,
        "p_value": item.p_value,
        "reason": item.reason,
    }


def as_json(cases: Sequence[Case], baseline: str | None, answers: Sequence[str] = ()) -> str:
    """Returns results, their verdicts and the recommendation as JSON.

    Args:
      cases: the results.
      baseline: competitor of the verdicts; None for none.
      answers: sentences of the recommendation.
    """
    compared = compare_to_baseline(cases, baseline) if baseline else []
    value = {
        "baseline": baseline,
        "results": result_rows(cases, baseline),
        "verdicts": [comparison_row(item) for item in compared],
        "recommendation": list(answers),
    }
    return json.dumps(value, indent=2, allow_nan=False, default=str)


def html(headings: Sequence[str], rows: Sequence[Sequence[str]], caption: str = "") -> str:
    """Returns an HTML table for a notebook."""
    head = "".join(f"<th>{escape(heading)}</th>" for heading in headings)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    return f"<table>{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
