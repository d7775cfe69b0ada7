"""The table of models that generate: first token, further tokens, tokens a second."""

from collections.abc import Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from comparative_benchmark.results.records import Record, competitor_of, metrics_of
from comparative_benchmark.stats.statistics import Interval
from comparative_benchmark.terminal.compare_views import latency_text
from comparative_benchmark.terminal.tables import digits, style_of

_FIGURES = (
    ("prefill_ms", "prefill ms"),
    ("decode_ms_per_token", "ms per token"),
    ("tokens_per_s", "tokens/s"),
)


def generation_table(records: Sequence[Record]) -> Table | None:
    """Returns prefill, decode and throughput of the records that generate; None if none does.

    Only a right answer has a time; `generation_remarks` says why a right one has none.
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
        table.add_row(
            label if label != previous else "",
            definition["framework"].rpartition(".")[2].lower(),
            competitor_of(definition),
            *(_figure(found, name) if status == "ok" else "-" for name, _ in _FIGURES),
            Text(status, style=style_of(status)),
        )
        previous = label
    return table


def generation_remarks(records: Sequence[Record]) -> list[str]:
    """Returns why prefill and decode have no time of their own, a line for each reason."""
    found: dict[str, dict[str, None]] = {}
    for record in records:
        reason = _of(record).get("not_measurable")
        if record["status"] == "ok" and reason:
            found.setdefault(reason, {})[competitor_of(record["definition"])] = None
    return [
        f"prefill and decode of {', '.join(names)}: {reason}" for reason, names in found.items()
    ]


def _of(record: Record) -> dict[str, Any]:
    found: dict[str, Any] = metrics_of(record).get("generation") or {}
    return found


def _figure(found: dict[str, Any], name: str) -> str:
    value, limits = found[name], found[f"{name}_interval"]
    if value is None:
        return "-"
    return latency_text(Interval(estimate=value, **limits)) if limits else digits(value)
