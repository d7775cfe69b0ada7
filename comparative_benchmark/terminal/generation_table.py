"""The table of models that generate: first token, further tokens, tokens a second."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import attrs

from comparative_benchmark.results.case import Case
from comparative_benchmark.results.record import Generation, IntervalRecord, ResultKey, Status
from comparative_benchmark.stats.analysis import Interval
from comparative_benchmark.terminal.columns import Column, FittedTable, fitted
from comparative_benchmark.terminal.compare_views import latency_text
from comparative_benchmark.terminal.screen import NO_LIMIT
from comparative_benchmark.terminal.tables import digits, status_text

# Field, heading, and rank of its column.
_FIGURES = (
    ("prefill_ms", "prefill ms", 2),
    ("decode_ms_per_token", "ms per token", 1),
    ("tokens_per_s", "tokens/s", 0),
)


def generation_table(
    cases: Sequence[Case],
    expected: Mapping[ResultKey, str] = MappingProxyType({}),
    *,
    width: int = NO_LIMIT,
) -> FittedTable | None:
    """Returns prefill, decode and throughput of the cases that generate; None if none does.

    Only a correct result has times; `generation_remarks` gives the reason if it has none.
    """
    generating = [case for case in cases if case.metrics.generation]
    if not generating:
        return None
    columns = [
        Column(heading="backend", cells=[case.competitor for case in generating]),
        Column(heading="from", cells=[case.framework for case in generating], rank=4),
        *(
            Column(
                heading=heading,
                cells=[_figure_of(case, name) for case in generating],
                rank=rank,
                right=True,
            )
            for name, heading, rank in _FIGURES
        ),
        Column(
            heading="status",
            cells=[status_text(case.result, expected) for case in generating],
            rank=3,
        ),
    ]
    labels = [case.label for case in generating]
    return fitted(columns, width, groups=labels, group_heading="generation")


def generation_remarks(cases: Sequence[Case]) -> list[str]:
    """Returns why prefill and decode have no time of their own, a line for each reason."""
    found: dict[str, dict[str, None]] = {}
    for case in cases:
        generation = case.metrics.generation
        if case.status is Status.OK and generation and generation.not_measurable:
            found.setdefault(generation.not_measurable, {})[case.competitor] = None
    return [
        f"prefill and decode not measurable for {', '.join(names)}: {reason}"
        for reason, names in found.items()
    ]


def _figure_of(case: Case, name: str) -> str:
    found = case.metrics.generation
    return _figure(found, name) if found and case.status is Status.OK else "-"


def _figure(found: Generation, name: str) -> str:
    value: float | None = getattr(found, name)
    limits: IntervalRecord | None = getattr(found, f"{name}_interval")
    if value is None:
        return "-"
    return (
        latency_text(Interval(estimate=value, **attrs.asdict(limits))) if limits else digits(value)
    )
