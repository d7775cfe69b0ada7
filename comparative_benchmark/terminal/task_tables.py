"""Tables of generating models and of training steps."""

import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import attrs

from comparative_benchmark.analysis.stats.analysis import Interval
from comparative_benchmark.results.case import Case
from comparative_benchmark.results.record import (
    Generation,
    IntervalRecord,
    ResultKey,
    Status,
    Training,
)
from comparative_benchmark.terminal.compare_views import latency_text
from comparative_benchmark.terminal.screen import NO_LIMIT, Column, FittedTable, fitted
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
    """Returns prefill, decode and throughput of generating cases; None if there are none.

    Only correct results have times; `generation_remarks` gives the reasons for others.
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
    """Returns why prefill and decode have no separate time, one line per reason."""
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


_BATCH = re.compile(r"_BATCH\d+$")


def training_table(
    cases: Sequence[Case],
    expected: Mapping[ResultKey, str] = MappingProxyType({}),
    *,
    width: int = NO_LIMIT,
) -> FittedTable | None:
    """Returns the rates of training cases; None if there are none.

    If cases only differ in batch size, `scaling` is the rate relative to the smallest batch.
    """
    training = [case for case in cases if case.metrics.training]
    if not training:
        return None
    smallest = _smallest_batches(training)
    right = [case.metrics.training if case.status is Status.OK else None for case in training]

    def column(heading: str, text: Callable[[Case, Training], str], rank: int = 0) -> Column:
        cells = [
            text(case, found) if found else "-" for case, found in zip(training, right, strict=True)
        ]
        return Column(heading=heading, cells=cells, rank=rank, right=True)

    columns = [
        Column(heading="backend", cells=[case.competitor for case in training]),
        Column(heading="from", cells=[case.framework for case in training], rank=5),
        column("samples/s", lambda _, it: _rate(it.samples_per_s, it.samples_per_s_interval)),
        column("tokens/s", lambda _, it: _rate(it.tokens_per_s, it.tokens_per_s_interval), 3),
        column("optimizer", lambda _, it: _share(it), 4),
        Column(
            heading="status",
            cells=[status_text(case.result, expected) for case in training],
            rank=2,
        ),
    ]
    if len(smallest) < len(training):
        scaling = column(
            "scaling", lambda case, it: _scaling(it, smallest[_apart_from_batch(case)]), 1
        )
        columns.insert(3, scaling)
    labels = [case.label for case in training]
    return fitted(columns, width, groups=labels, group_heading="training step")


def training_remarks(cases: Sequence[Case]) -> list[str]:
    """Returns the definition of the optimizer's share, and why some cases have none."""
    found = [case for case in cases if case.status is Status.OK and case.metrics.training]
    remarks = []
    apart = sorted({case.competitor for case in found if _is_of_programs(case.metrics.training)})
    if apart:
        remarks.append(
            f"~ optimizer: {', '.join(apart)} run a step as one program; the share is measured "
            "on separately compiled programs"
        )
    reasons: dict[str, dict[str, None]] = {}
    for case in found:
        training = case.metrics.training
        if training and training.parts_not_measurable:
            reasons.setdefault(training.parts_not_measurable, {})[case.competitor] = None
    remarks += [
        f"parts of a step not measurable for {', '.join(names)}: {reason}"
        for reason, names in reasons.items()
    ]
    return remarks


def _apart_from_batch(case: Case) -> tuple[str, str]:
    return _BATCH.sub("", case.result.definition.model), case.competitor


def _smallest_batches(cases: Sequence[Case]) -> dict[tuple[str, str], Training]:
    """Returns the smallest batches, as references for scaling; of correct cases if possible."""
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
