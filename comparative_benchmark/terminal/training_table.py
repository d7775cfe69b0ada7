"""The table of training steps: samples and tokens a second."""

import re
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

_BATCH = re.compile(r"_BATCH\d+$")


def training_table(
    cases: Sequence[Case], expected: Mapping[ResultKey, str] = MappingProxyType({})
) -> Table | None:
    """Returns the rates of the cases that train; None if none does.

    Where cases differ in nothing but their batch, `scaling` is the rate of samples in that of the
    smallest batch.
    """
    training = [case for case in cases if case.metrics.training]
    if not training:
        return None
    smallest = _smallest_batches(training)
    scales = len(smallest) < len(training)
    table = ruled_table()
    for heading in ("training step", "from", "backend"):
        table.add_column(heading, no_wrap=True)
    scaling = ("scaling",) if scales else ()
    for heading in ("samples/s", *scaling, "tokens/s", "optimizer"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("status")
    previous = None
    for case in training:
        found = case.metrics.training
        if previous not in (None, case.label):
            table.add_section()
        rates = ["-"] * (3 + scales)
        if found and case.status is Status.OK:
            rates = [
                _rate(found.samples_per_s, found.samples_per_s_interval),
                *([_scaling(found, smallest[_apart_from_batch(case)])] if scales else []),
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


def _apart_from_batch(case: Case) -> tuple[str, str]:
    return _BATCH.sub("", case.result.definition.model), case.competitor


def _smallest_batches(cases: Sequence[Case]) -> dict[tuple[str, str], Training]:
    """Returns those that other batches are compared with: of right cases, where there is one."""
    found: dict[tuple[str, str], Training] = {}
    for case in cases:
        training = case.metrics.training
        assert training
        key = _apart_from_batch(case)
        known = found.setdefault(key, training)
        if case.status is not Status.OK:
            continue
        if known.samples_per_s is None or training.batch_size < known.batch_size:
            found[key] = training
    return found


def _scaling(training: Training, smallest: Training) -> str:
    if training.samples_per_s is None or smallest.samples_per_s is None:
        return "-"
    return f"{training.samples_per_s / smallest.samples_per_s:.2f}x"


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
