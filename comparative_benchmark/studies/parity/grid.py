"""What a matrix is made of: workloads down, framework x competitor across, and what cannot be.

A row is a workload with the case of each framework that implements it. A column is a framework of
models with a competitor. Every combination is a cell: either a trial that can be run, or a reason
why there is none.
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

# Workload, case (or the row's label where there is none), framework, competitor.
CellKey = tuple[str, str, str, str]


@attrs.frozen(kw_only=True)
class Row:
    """A workload, and who implements it.

    `label` is the workload's, with the model's name where a framework has further implementations
    of the same workload: each of these has a row of its own, which is a `further` one. `others`
    then has those of the first row, for comparison.
    """

    workload: Workload
    label: str
    cases: Mapping[ModelFrameworkType, BenchmarkCase] = attrs.field(hash=False)
    others: Mapping[ModelFrameworkType, BenchmarkCase] = attrs.field(factory=dict, hash=False)
    further: bool = False


@attrs.frozen(kw_only=True)
class Column:
    """Models of one framework through one competitor."""

    framework: ModelFrameworkType
    competitor: Competitor

    @property
    def possible(self) -> bool:
        """Whether the backend takes models of that framework at all."""
        return self.framework in self.competitor.backend.suite_frameworks

    def __str__(self) -> str:
        return f"{self.framework.value} {self.competitor}"


@attrs.frozen(kw_only=True)
class Cell:
    """One place of the matrix: a trial, or the reason why there can be none."""

    row: Row
    column: Column
    trial: Trial | None = None
    unsupported: str | None = None

    @property
    def case(self) -> BenchmarkCase | None:
        """The case of its framework, if there is one."""
        return self.row.cases.get(self.column.framework)

    @property
    def key(self) -> CellKey:
        """What tells it from the others; `--resume` goes by it."""
        return (
            self.row.workload.digest,
            self.case.name if self.case else self.row.label,
            self.column.framework.value,
            str(self.column.competitor),
        )


def rows(selected: Sequence[BenchmarkCase], every: Iterable[BenchmarkCase]) -> list[Row]:
    """Returns the rows of the selected cases, each with its siblings in other frameworks.

    Args:
      selected: the cases that were asked for.
      every: where siblings are looked for.

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
    # Labels are for people, and two workloads may share one.
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
    """Returns every combination, row by row; none is left out."""
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
    """Returns a reason that a user can act on, or None for a cell that can be run."""
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
    """Adds a case unless it is one of those there by another name."""
    cases = by_framework.setdefault(_framework(case), [])
    if all(_implementation(case) != _implementation(other) for other in cases):
        cases.append(case)


def _implementation(case: BenchmarkCase) -> tuple[object, ...]:
    """Returns what decides which program a case is: cases with equal ones need one run."""
    implementation, parameters = case.model.model_impl, case.model.model_parameters
    if implementation.architecture is None:
        return (implementation.module_path, *sorted(parameters.items(), key=str))
    architecture = architectures.get(implementation.architecture)
    complete = dict(architecture.complete(parameters))
    # Two names of one configuration, as `torchvision/resnet50` for `microsoft/resnet-50`.
    complete["model_name"] = architecture.canonical_name(str(complete["model_name"]))
    return (implementation.module_path, *sorted(complete.items(), key=str))


def _framework(case: BenchmarkCase) -> ModelFrameworkType:
    return case.model.model_impl.framework_type
