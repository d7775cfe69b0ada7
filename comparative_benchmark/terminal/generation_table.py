"""The table of models that generate: first token, further tokens, tokens a second."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import attrs
from rich.table import Table

from comparative_benchmark.results.case import Case
from comparative_benchmark.results.record import Generation, IntervalRecord, ResultKey, Status
from comparative_benchmark.stats.analysis import Interval
from comparative_benchmark.terminal.compare_views import latency_text
from comparative_benchmark.terminal.tables import digits, ruled_table, status_text

_FIGURES = (
    ("prefill_ms", "prefill ms"),
    ("decode_ms_per_token", "ms per token"),
    ("tokens_per_s", "tokens/s"),
)


def generation_table(
    cases: Sequence[Case], expected: Mapping[ResultKey, str] = MappingProxyType({})
) -> Table | None:
    """Returns prefill, decode and throughput of the cases that generate; None if none does.

    Only a right answer has a time; `generation_remarks` says why a right one has none.
    """
    generating = [case for case in cases if case.metrics.generation]
    if not generating:
        return None
    table = ruled_table()
    for heading in ("generation", "from", "backend"):
        table.add_column(heading, no_wrap=True)
    for _, heading in _FIGURES:
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("status")
    previous = None
    for case in generating:
        found = case.metrics.generation
        if previous not in (None, case.label):
            table.add_section()
        table.add_row(
            case.label if case.label != previous else "",
            case.framework,
            case.competitor,
            *(
                _figure(found, name) if found and case.status is Status.OK else "-"
                for name, _ in _FIGURES
            ),
            status_text(case.result, expected),
        )
        previous = case.label
    return table


def generation_remarks(cases: Sequence[Case]) -> list[str]:
    """Returns why prefill and decode have no time of their own, a line for each reason."""
    found: dict[str, dict[str, None]] = {}
    for case in cases:
        generation = case.metrics.generation
        if case.status is Status.OK and generation and generation.not_measurable:
            found.setdefault(generation.not_measurable, {})[case.competitor] = None
    return [
        f"prefill and decode of {', '.join(names)}: {reason}" for reason, names in found.items()
    ]


def _figure(found: Generation, name: str) -> str:
    value: float | None = getattr(found, name)
    limits: IntervalRecord | None = getattr(found, f"{name}_interval")
    if value is None:
        return "-"
    return (
        latency_text(Interval(estimate=value, **attrs.asdict(limits))) if limits else digits(value)
    )
