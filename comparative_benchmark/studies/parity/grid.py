"""The cells of a matrix: rows are workloads, columns are pairs of framework and competitor.

A row contains the workload's case in each framework that implements it. A column is a framework of
models with a competitor. Every combination is a cell, with either a trial or the reason why it
cannot be run.
"""

from collections.abc import Iterable, Mapping, Sequence

import attrs

from comparative_benchmark.engine.trial import Competitor, Trial
from openxla.benchmark.def_types import (
    BenchmarkCase,
    DeviceSpec,
    ModelFrameworkType,
    Workload,
)
from openxla.benchmark.models import architectures
from openxla.benchmark.workloads import workload_of

# Workload, case (or the row's label if there is none), framework, competitor.
CellKey = tuple[str, str, str, str]


@attrs.frozen(kw_only=True)
class Row:
    """A workload and its implementations.

    `label` is the label of the workload. If a framework has further implementations of the same
    workload, each gets its own row, with `further` set, the model's name in its label, and the
    first row's implementations in `others`, for comparison.
    """

    workload: Workload
    label: str
    cases: Mapping[ModelFrameworkType, BenchmarkCase] = attrs.field(hash=False)
    others: Mapping[ModelFrameworkType, BenchmarkCase] = attrs.field(factory=dict, hash=False)
    further: bool = False


@attrs.frozen(kw_only=True)
class Column:
    """Models of one framework run by one competitor."""

    framework: ModelFrameworkType
    competitor: Competitor

    @property
    def possible(self) -> bool:
        """Whether the backend supports models of that framework."""
        return self.framework in self.competitor.backend.suite_frameworks

    def __str__(self) -> str:
        return f"{self.framework.value} {self.competitor}"


@attrs.frozen(kw_only=True)
class Cell:
    """A cell of the matrix: a trial, or the reason why it cannot be run."""

    row: Row
    column: Column
    trial: Trial | None = None
    unsupported: str | None = None

    @property
    def case(self) -> BenchmarkCase | None:
        """The case in its framework, if any."""
        return self.row.cases.get(self.column.framework)

    @property
    def key(self) -> CellKey:
        """Identifies the cell, also for `--resume`."""
        return (
            self.row.workload.digest,
            self.case.name if self.case else self.row.label,
            self.column.framework.value,
            str(self.column.competitor),
        )


def rows(selected: Sequence[BenchmarkCase], every: Iterable[BenchmarkCase]) -> list[Row]:
    """Returns the rows of the selected cases, each with the same workload in other frameworks.

    Args:
      selected: the selected cases.
      every: all cases, among which the other frameworks' are found.

    Raises:
      DefinitionError: a case is malformed.
    """
    workloads: dict[str, Workload] = {}
    chosen: dict[str, dict[ModelFrameworkType, list[BenchmarkCase]]] = {}
    for case in selected:
        workload = workload_of(case)
        workloads[workload.digest] = workload
        _add(chosen.setdefault(workload.digest, {}), case)
    siblings: dict[str, dict[ModelFrameworkType, list[BenchmarkCase]]] = {}
    for case in every:
        digest = workload_of(case).digest
        if digest in chosen and _framework(case) not in chosen[digest]:
            _add(siblings.setdefault(digest, {}), case)
    # Two workloads may have the same label.
    labels = [workload.label for workload in workloads.values()]
    found = []
    for digest, workload in workloads.items():
        label = workload.label if labels.count(workload.label) == 1 else workload.id
        first = {
            framework: cases[0]
            for framework, cases in (*chosen[digest].items(), *siblings.get(digest, {}).items())
        }
        found.append(Row(workload=workload, label=label, cases=first))
        found += [
            Row(
                workload=workload,
                label=f"{label} {case.model.name}",
                cases={framework: case},
                others={key: other for key, other in first.items() if key is not framework},
                further=True,
            )
            for framework, cases in chosen[digest].items()
            for case in cases[1:]
        ]
    return found


def columns(
    frameworks: Sequence[ModelFrameworkType], competitors: Sequence[Competitor]
) -> list[Column]:
    """Returns every framework with every competitor."""
    return [
        Column(framework=framework, competitor=competitor)
        for framework in frameworks
        for competitor in competitors
    ]


def cells(
    found_rows: Sequence[Row], found_columns: Sequence[Column], device: DeviceSpec
) -> list[Cell]:
    """Returns every combination, row by row."""
    return [_cell(row, column, device) for row in found_rows for column in found_columns]


def _cell(row: Row, column: Column, device: DeviceSpec) -> Cell:
    reason = _why_not(row, column)
    if reason is not None:
        return Cell(row=row, column=column, unsupported=reason)
    trial = Trial(
        case=row.cases[column.framework],
        workload=row.workload,
        competitor=column.competitor,
        device=device,
    )
    return Cell(row=row, column=column, trial=trial)


def _why_not(row: Row, column: Column) -> str | None:
    """Returns why a cell cannot be run, as advice for the user; None if it can."""
    framework, backend = column.framework, column.competitor.backend
    if not column.possible:
        takes = ", ".join(item.value for item in backend.modules)
        return f"{backend.name} takes {takes} models: look there for this workload"
    if framework not in row.cases:
        if row.further:
            return "another implementation of one framework; other frameworks are in the row above"
        return (
            f"the workload is not implemented in {framework.value}; to add it, see "
            "docs/guides/extend/add-a-model.md"
        )
    if missing := column.competitor.missing_modules(framework):
        return backend.absence(missing).sentence
    return None


def _add(by_framework: dict[ModelFrameworkType, list[BenchmarkCase]], case: BenchmarkCase) -> None:
    """Adds a case unless the same implementation has been added under another name."""
    cases = by_framework.setdefault(_framework(case), [])
    if all(_implementation(case) != _implementation(other) for other in cases):
        cases.append(case)


def _implementation(case: BenchmarkCase) -> tuple[object, ...]:
    """Returns the properties that determine a case's program; cases with equal ones run once."""
    implementation, parameters = case.model.model_impl, case.model.model_parameters
    if implementation.architecture is None:
        return (implementation.module_path, *sorted(parameters.items(), key=str))
    architecture = architectures.get(implementation.architecture)
    complete = dict(architecture.complete(parameters))
    # A configuration may have two names, e.g. `torchvision/resnet50` and `microsoft/resnet-50`.
    complete["model_name"] = architecture.canonical_name(str(complete["model_name"]))
    return (implementation.module_path, *sorted(complete.items(), key=str))


def _framework(case: BenchmarkCase) -> ModelFrameworkType:
    return case.model.model_impl.framework_type
