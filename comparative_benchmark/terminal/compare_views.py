"""Comparisons as JSON, as Markdown for a pull request, and as table rows.

Numbers have only the digits that their intervals support.
"""

import json
import math
from collections.abc import Sequence
from typing import Any

import attrs

from comparative_benchmark.analysis.stats.analysis import (
    DECISIVE_PROCESSES,
    WITHIN_ONE_PROCESS,
    Interval,
)
from comparative_benchmark.results.comparing.compare_remarks import Remarks
from comparative_benchmark.results.comparing.comparison import Comparison, Summary
from comparative_benchmark.terminal.screen import escaped, row

HEADINGS = (
    *("workload", "competitor", "baseline ms", "candidate ms", "speed-up (98 %)"),
    *("verdict", "p", "measured", "compile", "memory", "why"),
)
_MOST_DECIMALS = 6


def as_json(
    comparisons: Sequence[Comparison], summary: Summary, remarks: Remarks | None = None
) -> str:
    """Returns all data of the comparisons as JSON text."""
    value: dict[str, Any] = {
        "comparisons": [
            attrs.asdict(
                item,
                filter=lambda field, _: field.name not in ("log_ratio", "base"),
                value_serializer=lambda _, __, field: getattr(field, "value", field),
            )
            for item in comparisons
        ],
        "summary": {**attrs.asdict(summary), "pass_rate": summary.pass_rate},
    }
    if remarks is not None:
        value["remarks"] = attrs.asdict(remarks)
    return json.dumps(value, indent=2, allow_nan=False, default=str)


def as_markdown(
    comparisons: Sequence[Comparison], summary: Summary, remarks: Remarks | None = None
) -> str:
    """Returns Markdown: the summary, a table, comparisons without a ratio, and remarks."""
    lines = [f"**{summary_line(summary)}**", ""]
    rows = table_rows([item for item in comparisons if item.ratio])
    if rows:
        lines += [row(HEADINGS), row(["---"] * len(HEADINGS)), *map(row, rows), ""]
    lists = {
        "Wrong output, not ranked": summary.wrong,
        "Missing": summary.missing,
        "Not comparable": summary.incomparable,
    }
    for title, names in lists.items():
        if names:
            lines += [f"{title}:", *(f"- {escaped(name)}" for name in names), ""]
    lines += [f"{escaped(line)}\n" for line in remarks.lines] if remarks else []
    return "\n".join(lines).rstrip() + "\n"


def table_rows(comparisons: Sequence[Comparison]) -> list[tuple[str, ...]]:
    """Returns a row of texts for each comparison, in the order of `HEADINGS`."""
    return [
        (
            item.label,
            f"{item.competitor} ({item.framework})",
            latency_text(item.baseline_ms),
            latency_text(item.candidate_ms),
            speedup_text(item.ratio),
            item.word,
            "-" if item.p_value is None else f"{item.p_value:.2g}",
            item.quantity if item.ratio else "-",
            _quotient_text(item.compile_ratio),
            _quotient_text(item.memory_ratio),
            item.reason,
        )
        for item in comparisons
    ]


def summary_line(summary: Summary) -> str:
    """Returns the geomean with its case count and pass rate, and the counts of verdicts."""
    means = [
        f"speed-up{of} {speedup_text(mean)}, geomean over {count} of {summary.cases} cases"
        for mean, of, count in (
            (summary.geomean_interval, "", summary.passed - summary.compiled),
            (summary.compile_geomean_interval, " of cold compiles", summary.compiled),
        )
        if mean is not None and not summary.is_disturbed
    ]
    names = ("faster", "slower", "disturbed", "wrong", "missing", "incomparable")
    why = "other processes disturbed too many cases for a mean"
    means = means or [why if summary.is_disturbed else "no case could be compared"]
    texts = {n: f"{len(found)} {n}" for n in names if (found := getattr(summary, n))}
    if len(summary.regressions) < len(summary.slower):
        # A single verdict is wrong in 2 % of cases, so some of many verdicts are wrong.
        enough = f"which takes {DECISIVE_PROCESSES} processes"
        texts["slower"] += f" ({len(summary.regressions)} significant, {enough})"
    return ", ".join([*means, *texts.values()])


def speedup_text(ratio: Interval | None) -> str:
    """Returns the speed-up of a ratio of latencies, e.g. `1.10 (1.05-1.14)`; `-` for None."""
    return ratio_text(ratio.inverse if ratio else None)


def ratio_text(interval: Interval | None) -> str:
    """Returns e.g. `0.91 (0.88-0.95)`; `-` for None.

    If the interval excludes 1, digits are added until its rounded limits do, too.
    """
    if interval is None:
        return "-"
    decimals = _decimals(interval)
    nearest = max(interval.low, min(interval.high, 1.0))
    while decimals < _MOST_DECIMALS and nearest != 1 and float(f"{nearest:.{decimals}f}") == 1:
        decimals += 1
    return _with_interval(interval, decimals)


def latency_text(interval: Interval | None) -> str:
    """Returns e.g. `1.23 (1.20-1.26)`; `-` for None."""
    return "-" if interval is None else _with_interval(interval, _decimals(interval))


def _decimals(interval: Interval) -> int:
    """Returns the number of decimals that show one digit of half-width and estimate."""
    half_width = 0.0 if interval.is_open else (interval.high - interval.low) / 2
    # Without a width, the clock's resolution limits the digits to about four.
    scale = half_width if half_width > 0 else abs(interval.estimate) * 1e-3
    # An estimate of 0 would not be a ratio.
    scale = min(scale, abs(interval.estimate))
    return min(max(0, -math.floor(math.log10(scale))), _MOST_DECIMALS)


def _with_interval(interval: Interval, decimals: int) -> str:
    estimate, low, high = (
        f"{value:.{decimals}f}" if value < 1e6 else f"{value:.1e}"
        for value in (interval.estimate, interval.low, interval.high)
    )
    within = f" {WITHIN_ONE_PROCESS}" if interval.processes == 1 else ""
    limits = "no interval" if interval.is_open else f"{low}-{high}"
    return f"{estimate} ({limits}{within})"


def _quotient_text(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.2g}" if ratio < 10 else f"{ratio:.0f}"
