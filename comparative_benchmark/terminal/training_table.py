"""The table of training steps: samples and tokens a second."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import attrs
from rich.table import Table

from comparative_benchmark.results.case import Case
from comparative_benchmark.results.record import IntervalRecord, ResultKey, Status, Training
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
    for heading in ("samples/s", "tokens/s", "optimizer"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("status")
    previous = None
    for case in training:
        found = case.metrics.training
        if previous not in (None, case.label):
            table.add_section()
        rates = ["-", "-", "-"]
        if found and case.status is Status.OK:
            rates = [
                _rate(found.samples_per_s, found.samples_per_s_interval),
                _rate(found.tokens_per_s, found.tokens_per_s_interval),
                _share(found),
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


def training_remarks(cases: Sequence[Case]) -> list[str]:
    """Returns what the optimizer's share is of, and why some have none."""
    found = [case for case in cases if case.status is Status.OK and case.metrics.training]
    remarks = []
    apart = sorted({case.competitor for case in found if _is_of_programs(case.metrics.training)})
    if apart:
        remarks.append(
            f"~ optimizer: {', '.join(apart)} run a step as one program; the share is that of the "
            "update among programs compiled apart"
        )
    reasons: dict[str, dict[str, None]] = {}
    for case in found:
        training = case.metrics.training
        if training and training.parts_not_measurable:
            reasons.setdefault(training.parts_not_measurable, {})[case.competitor] = None
    told = [f"parts of a step of {', '.join(names)}: {reason}" for reason, names in reasons.items()]
    return [*remarks, *told]


def _is_of_programs(training: Any) -> bool:
    return bool(training) and any(times.how == "programs" for times in training.processes)


def _share(training: Training) -> str:
    if training.optimizer_share is None:
        return "-"
    return f"{'~' * _is_of_programs(training)}{100 * training.optimizer_share:.0f} %"


def _rate(value: float | None, limits: IntervalRecord | None) -> str:
    if value is None:
        return "-"
    return (
        latency_text(Interval(estimate=value, **attrs.asdict(limits))) if limits else digits(value)
    )
