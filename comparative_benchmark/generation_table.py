"""The table of models that generate: first token, further tokens, tokens a second."""

from collections.abc import Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from comparative_benchmark.harness.statistics import Interval
from comparative_benchmark.results.compare_views import latency_text
from comparative_benchmark.results.records import Record, competitor_of, metrics_of
from comparative_benchmark.tables import digits, style_of

_FIGURES = (
    ("prefill_ms", "prefill ms"),
    ("decode_ms_per_token", "ms per token"),
    ("tokens_per_s", "tokens/s"),
)


def generation_table(records: Sequence[Record]) -> Table | None:
    """Returns prefill, decode and throughput of the records that generate; None if none does.

    Where a stack runs both as one program, or they failed, the last column says why they have no
    time. Only a right answer has one.
    """
    generating = [record for record in records if _of(record)]
    if not generating:
        return None
    table = Table(pad_edge=False)
    for heading in ("generation", "from", "backend"):
        table.add_column(heading, no_wrap=True)
    for _, heading in _FIGURES:
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("status")
    previous = None
    for record in generating:
        definition, found = record["definition"], _of(record)
        label, status = definition["workload"]["label"], record["status"]
        if previous not in (None, label):
            table.add_section()
        note = Text(status, style=style_of(status))
        if status == "ok" and found["not_measurable"]:
            note.append(f"; apart: {found['not_measurable']}", style="yellow")
        table.add_row(
            label if label != previous else "",
            definition["framework"].rpartition(".")[2].lower(),
            competitor_of(definition),
            *(_figure(found, name) if status == "ok" else "-" for name, _ in _FIGURES),
            note,
        )
        previous = label
    return table


def _of(record: Record) -> dict[str, Any]:
    found: dict[str, Any] = metrics_of(record).get("generation") or {}
    return found


def _figure(found: dict[str, Any], name: str) -> str:
    value, limits = found[name], found[f"{name}_interval"]
    if value is None:
        return "-"
    return latency_text(Interval(estimate=value, **limits)) if limits else digits(value)
