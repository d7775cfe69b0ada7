"""Formatting of numbers and states, for the page and for Markdown."""

import math
from collections.abc import Mapping, Sequence

from comparative_benchmark.analysis.stats.analysis import WITHIN_ONE_PROCESS, Interval
from comparative_benchmark.reporting.report.standings import Mean
from comparative_benchmark.results.record import Run
from comparative_benchmark.terminal.tables import digits

GLYPHS = {"faster": "▲", "slower": "▼", "same": "=", "unclear": "?"}
_MOST_DECIMALS = 3
_TIMES, _DASH, _MINUS = "\N{MULTIPLICATION SIGN}", "\N{EN DASH}", "\N{MINUS SIGN}"


def speedup(mean: Mean) -> str:
    """Returns e.g. `1.92x`, with the digits that its interval supports, but at least two."""
    return f"{mean.estimate:.{_decimals(mean)}f}{_TIMES}"


def limits(mean: Mean) -> str:
    """Returns e.g. `1.88-1.97`, with an en dash; the interval of one process is marked."""
    count = _decimals(mean)
    within = f" {WITHIN_ONE_PROCESS}" if mean.processes == 1 else ""
    return f"{mean.low:.{count}f}{_DASH}{mean.high:.{count}f}{within}"


def percent(change: float) -> str:
    """Returns e.g. `+8.2 %`."""
    text = f"{change:+.1f}" if abs(change) < 10 else f"{change:+.0f}"
    return f"{text.replace('-', _MINUS)} %"


def change(ratio: Interval) -> str:
    """Returns e.g. `+8.2 % (98 % interval +7.1 % to +9.4 %)` of candidate / baseline."""
    estimate, low, high = (
        percent(100 * (value - 1)) for value in (ratio.estimate, ratio.low, ratio.high)
    )
    if ratio.is_open:
        return f"{estimate} (no interval)"
    return f"{estimate} ({ratio.scope} interval {low} to {high})"


def duration(ms: float) -> str:
    """Returns e.g. `1.23 ms` or `4.56 s`."""
    return f"{digits(ms)} ms" if ms < 1000 else f"{digits(ms / 1000)} s"


def verdicts(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    """Returns the nonzero counts of verdicts, in their usual order."""
    return [(name, counts[name]) for name in GLYPHS if counts.get(name)]


def start(run: Run) -> str:
    """Returns the start of a run, e.g. `2026-11-22 03:04`."""
    return run.trigger.timestamp.replace("T", " ")[:16]


def plural(count: int, name: str) -> str:
    """Returns e.g. `5,000 results`."""
    return f"{count:,} {name}{'' if count == 1 else 's'}"


def listed(names: Sequence[str], most: int = 3) -> str:
    """Returns names with commas, and the number of omitted ones."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def _decimals(mean: Mean) -> int:
    half = (mean.high - mean.low) / 2
    least = 2 if mean.estimate < 10 else 1
    if not 0 < half < math.inf:
        return _MOST_DECIMALS
    return min(_MOST_DECIMALS, max(least, -math.floor(math.log10(half))))
