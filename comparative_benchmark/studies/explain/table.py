"""Output of `cbs explain`: a table of the time lost, and notes on the compilers."""

import json
from collections.abc import Iterator

import attrs
from rich.table import Table
from rich.text import Text

from comparative_benchmark.results.comparing.explanations import Explanation, Part, Row, Side
from comparative_benchmark.terminal.screen import ruled_table
from comparative_benchmark.terminal.tables import digits

# Limit on graph breaks, fallbacks and remarks per competitor.
_MOST_LINES = 8
# Hide kinds below this share of the slower latency on both sides.
_LEAST_SHARE = 0.002
# Time, calls and share of the roof.
_Cells = tuple[str, str, str]
_EMPTY: _Cells = ("", "", "")


def table_of(explanation: Explanation, *, narrow: bool = False, most_operators: int = 3) -> Table:
    """Returns kinds of operators by time lost, each with its longest operators on both sides.

    Args:
      explanation: the explanation to show.
      narrow: omit numbers of calls, and shares of the whole difference.
      most_operators: limit per kind and competitor.
    """
    slow, fast = explanation.slow, explanation.fast
    parts = [part for row in explanation.rows for part in (row.slow, row.fast) if part]
    with_roof = any(part.of_roof is not None for part in parts)
    shown = _Columns(calls=not narrow, roof=with_roof)
    table = ruled_table()
    table.add_column("operators", no_wrap=not narrow)
    for heading in ("lost ms", *(() if narrow else ("share",))):
        table.add_column(heading, justify="right", no_wrap=True)
    for side in (slow, fast):
        for heading in shown.of(f"{side.competitor} ms", "calls", "of roof"):
            table.add_column(heading, justify="right", no_wrap=not narrow)
    for row in _worth_showing(explanation):
        share = () if narrow else (_part_of(row.lost_ms, explanation.lost_ms),)
        halves = [_part(part, spread=not narrow) for part in (row.slow, row.fast)]
        cells = (*shown.of(*halves[0]), *shown.of(*halves[1]))
        table.add_row(row.kind, _signed(row.lost_ms), *share, *cells)
        for name, of_slow, of_fast in _operators(row, most_operators):
            cells = (*shown.of(*of_slow), *shown.of(*of_fast))
            table.add_row(f"  {name}", "", *("" for _ in share), *cells, style="dim")
    table.add_section()
    latencies = [shown.of(digits(side.latency_ms), "", "") for side in (slow, fast)]
    empty = () if narrow else ("",)
    table.add_row(
        "measured latency",
        _signed(explanation.lost_ms),
        *(*empty, *latencies[0], *latencies[1]),
    )
    return table


@attrs.frozen(kw_only=True)
class _Columns:
    """Columns of a competitor to show next to its time."""

    calls: bool
    roof: bool

    def of(self, ms: str, calls: str, roof: str) -> tuple[str, ...]:
        return (ms, *((calls,) if self.calls else ()), *((roof,) if self.roof else ()))


def lines_of(explanation: Explanation) -> Iterator[Text]:
    """Yields the lines below the table."""
    yield _verdict(explanation)
    for side in (explanation.slow, explanation.fast):
        yield from _of_side(side)


def as_json(explanation: Explanation) -> str:
    """Returns the whole explanation as JSON."""
    fields = attrs.asdict(explanation)
    for name, side in (("slow", explanation.slow), ("fast", explanation.fast)):
        fields[name]["cover"] = side.cover
    return json.dumps({"lost_ms": explanation.lost_ms, **fields}, indent=1, allow_nan=False)


def _worth_showing(explanation: Explanation) -> Iterator[Row]:
    least = _LEAST_SHARE * explanation.slow.latency_ms
    for row in explanation.rows:
        parts = [part for part in (row.slow, row.fast) if part]
        if row.lost_ms is None or any(abs(part.ms) >= least for part in parts):
            yield row


def _verdict(explanation: Explanation) -> Text:
    slow, fast = explanation.slow, explanation.fast
    text = Text(
        f"{fast.competitor} is {digits(slow.latency_ms / fast.latency_ms)} times as fast as "
        f"{slow.competitor}, which takes {digits(explanation.lost_ms)} ms longer"
    )
    worst = [row for row in explanation.rows if (row.lost_ms or 0.0) > 0 and row.is_beyond_spread]
    worst = worst[:2]
    if worst and explanation.lost_ms > 0:
        most = " and ".join(f"{row.kind} ({_signed(row.lost_ms)} ms)" for row in worst)
        text.append(f"; most of the difference: {most}")
    return text


def _of_side(side: Side) -> Iterator[Text]:
    profile = side.profile
    if profile.disturbed:
        yield Text(f"{side.competitor}: {profile.disturbed}: profile again with --again", "yellow")
    if side.cover is None:
        text = f"{len(profile.operators)} operators without times"
    else:
        text = (
            f"{digits(side.told_ms or 0.0)} ms in operators during profiling, "
            f"{side.cover:.0%} of the latency"
        )
        if profile.repeats:
            text += f" (median of {1 + len(profile.repeats)} profiles; the table shows their range)"
        if side.cover > 1:
            text += ": the profiler adds time, so `between operators` is too low"
    yield Text(f"{side.competitor} by {profile.stack}: {text}", style="bold")
    for title, lines in (
        ("graph break", profile.breaks),
        ("fallback", profile.fallbacks),
        ("fused", profile.fusions),
        ("note", profile.remarks),
    ):
        for line in lines[:_MOST_LINES]:
            yield Text(f"  {title}: {line}")
        if len(lines) > _MOST_LINES:
            yield Text(f"  {title}: and {len(lines) - _MOST_LINES} more (use --json for all)")


def _part(part: Part | None, *, spread: bool) -> _Cells:
    if part is None:
        return "-", "", ""
    roof = "" if part.of_roof is None else _share(part.of_roof)
    ms = digits(part.ms)
    if spread and part.lowest_ms < part.highest_ms:
        ms += f" ({digits(part.lowest_ms)} to {digits(part.highest_ms)})"
    return ms, digits(part.calls) if part.calls else "", roof


def _operators(row: Row, most: int) -> Iterator[tuple[str, _Cells, _Cells]]:
    """Yields the longest operators of both sides, one line each, because they differ."""
    for part, is_slow in ((row.slow, True), (row.fast, False)):
        for shown in part.operators[:most] if part else ():
            cells = (
                "-" if shown.ms is None else digits(shown.ms),
                digits(shown.calls),
                "" if shown.of_roof is None else _share(shown.of_roof),
            )
            name = _short(f"{shown.name} ({shown.does})" if shown.does else shown.name)
            yield (name, cells, _EMPTY) if is_slow else (name, _EMPTY, cells)


def _short(name: str, most: int = 60) -> str:
    clean = " ".join(name.split())
    return clean if len(clean) <= most else f"{clean[: most - 3]}..."


def _signed(ms: float | None) -> str:
    if ms is None:
        return "-"
    return f"{'+' if ms >= 0 else '-'}{digits(abs(ms))}"


def _part_of(lost_ms: float | None, all_ms: float) -> str:
    return "" if lost_ms is None or all_ms <= 0 else f"{lost_ms / all_ms:.0%}"


def _share(share: float) -> str:
    return f"{share:{'.0%' if share >= 0.1 else '.1%'}}"
