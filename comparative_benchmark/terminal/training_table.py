"""The table of training steps: samples and tokens a second."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import attrs
from rich.table import Table

from comparative_benchmark.results.case import Case
from comparative_benchmark.results.record import IntervalRecord, ResultKey, Status
from comparative_benchmark.stats.analysis import Interval
from comparative_benchmark.terminal.compare_views import latency_text
from comparative_benchmark.terminal.tables import digits, ruled_table, status_text


def training_table(
    cases: Sequence[Case], expected: Mapping[ResultKey, str] = MappingProxyType({})
) -> Table | None:
    """Returns the rates of the cases that train; None if none does."""
    training = [case for case in cases if case.metrics.training]
    if not training:
        return None
    table = ruled_table()
    for heading in ("training step", "from", "backend"):
        table.add_column(heading, no_wrap=True)
    for heading in ("samples/s", "tokens/s"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("status")
    previous = None
    for case in training:
        found = case.metrics.training
        if previous not in (None, case.label):
            table.add_section()
        rates = ["-", "-"]
        if found and case.status is Status.OK:
            rates = [
                _rate(found.samples_per_s, found.samples_per_s_interval),
                _rate(found.tokens_per_s, found.tokens_per_s_interval),
            ]
        table.add_row(
            case.label if case.label != previous else "",
            case.framework,
            case.competitor,
            *rates,
            status_text(case.result, expected),
        )
        previous = case.label
    return table


def _rate(value: float | None, limits: IntervalRecord | None) -> str:
    if value is None:
        return "-"
    return (
        latency_text(Interval(estimate=value, **attrs.asdict(limits))) if limits else digits(value)
    )
