"""The cells of a matrix, their results, and the JSON file with all of them.

A row contains a workload's case in each framework that implements it. A column is a framework of
models with a competitor. Every combination is a cell, with either a trial or the reason why it
cannot be run. The file is written as a whole, every few seconds and at the end.

{"schema_version": 1, "kind": "parity", "started": ..., "command": [...],
"execution_environment": {"python_environment": [...], "host": {...}, "git_revision": ...,
"jobs": ...},
"cells": [CellResult ...], "drift": [...],
"counts": {"ok": ..., ...}, "exit_code": ...}

`cells` has one object for each combination of workload, framework and competitor, with the fields
of `CellResult`; its `expected` is the reason of a known failure. `counts` and `exit_code` are null
until the run has ended.
"""

import datetime
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self

import attrs
import msgspec
from filelock import FileLock, Timeout
from msgspec import UNSET, UnsetType
from packaging.utils import canonicalize_name

from comparative_benchmark.engine.trial import Competitor, Trial
from comparative_benchmark.errors import UsageError
from comparative_benchmark.results.outcome import ProcessRecord
from comparative_benchmark.results.record import Status
from comparative_benchmark.results.results_file import plain, write_atomically
from openxla.benchmark.def_types import BenchmarkCase, DeviceSpec, ModelFrameworkType, Workload
from openxla.benchmark.models import architectures
from openxla.benchmark.workloads import workload_of

# Workload, case (or the row's label without a case), framework, competitor.
CellKey = tuple[str, str, str, str]

SCHEMA_VERSION = 1
_KIND = "parity"
# `--resume` reuses results with these statuses.
SETTLED = (Status.OK, Status.UNSUPPORTED)
_WRITE_EVERY_S = 2.0


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
    rows = []
    for digest, workload in workloads.items():
        label = workload.label if labels.count(workload.label) == 1 else workload.id
        first = {
            framework: cases[0]
            for framework, cases in (*chosen[digest].items(), *siblings.get(digest, {}).items())
        }
        rows.append(Row(workload=workload, label=label, cases=first))
        rows += [
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
    return rows


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
        return f"{backend.name} accepts only {takes} models; see the columns for those models"
    if framework not in row.cases:
        if row.further:
            return "second implementation in one framework; see the row above for other frameworks"
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


@attrs.frozen(kw_only=True)
class CellResult:
    """The result of a cell, as stored in the file.

    Attributes:
      workload: digest of the workload; `workload_id` is readable.
      label: label of the row.
      framework: framework of the model, as in `cbs list --framework`.
      competitor: `backend:compiler+options`.
      device: name of the device.
      case: name of the benchmark case; None if a framework has no implementation.
      status: as in results, see `Status`.
      phase: the phase in which it ended; with `reason` unless it is `ok`.
      relative_error: root mean square error of the output against the float64 truth, over the
        truth's root mean square.
      allowed_relative_error: largest relative error that passes.
      worst_part: the largest error of a part as a share of the allowed one; see `Verification`.
      max_abs_error: largest absolute error of an element.
      wall_s: duration of the cell in seconds.
      log_file: output of its worker; cells that shared a worker share the file.
      traceback: traceback from the worker, if any.
      versions: versions of the packages that the worker imported.
      note: further information on how it ran.
      expected: reason of a known failure.
    """

    workload: str
    workload_id: str
    label: str
    framework: str
    competitor: str
    device: str
    case: str | None = None
    status: Status
    phase: str | None = None
    reason: str | None = None
    relative_error: float | None = None
    allowed_relative_error: float | None = None
    worst_part: float | None = None
    max_abs_error: float | None = None
    wall_s: float = 0.0
    log_file: str | None = None
    traceback: str | None = None
    versions: dict[str, str] = attrs.field(factory=dict, hash=False)
    note: str | None = None
    expected: str | UnsetType = UNSET

    @property
    def key(self) -> CellKey:
        """The same as `Cell.key`."""
        return (self.workload, self.case or self.label, self.framework, self.competitor)


def unsupported(cell: Cell, device: str) -> CellResult:
    """Returns the result of a cell that cannot be run."""
    return CellResult(
        **_identity(cell, device),
        case=cell.case.name if cell.case else None,
        status=Status.UNSUPPORTED,
        phase="import",
        reason=cell.unsupported,
    )


def result_of(
    cell: Cell, trial: Trial, record: ProcessRecord, wall_s: float, note: str | None = None
) -> CellResult:
    """Returns the result of a cell that was run."""
    verification = record.final_verification or record.verification
    return CellResult(
        **_identity(cell, trial.device.name),
        case=trial.case.name,
        status=record.status,
        phase=record.phase,
        reason=record.reason,
        relative_error=verification.relative_rmse if verification else None,
        allowed_relative_error=verification.allowed_relative_rmse if verification else None,
        worst_part=verification.worst_part if verification else None,
        max_abs_error=verification.max_abs_error if verification else None,
        wall_s=round(wall_s, 3),
        log_file=record.log_file or None,
        traceback=record.traceback,
        versions=record.versions,
        note=note,
    )


def _identity(cell: Cell, device: str) -> dict[str, Any]:
    return {
        "workload": cell.row.workload.digest,
        "workload_id": cell.row.workload.id,
        "label": cell.row.label,
        "framework": cell.column.framework.value,
        "competitor": str(cell.column.competitor),
        "device": device,
    }


class ParityFileError(UsageError, RuntimeError):
    """A file is not a parity file, or cannot be written; the message gives the remedy."""


class ParityFile:
    """A matrix stored in a file, or only in memory without a path.

    A matrix may have thousands of cells, so the file is written at most every few seconds, and at
    the end of the `with` block, which the caller must enter. Within the block, the file is locked:
    two processes would overwrite each other's results.
    """

    def __init__(
        self,
        path: Path | None,
        *,
        command: Sequence[str],
        execution_environment: Mapping[str, Any],
        resume: bool,
    ) -> None:
        """Reads an existing file.

        Raises:
          ParityFileError: the file is not a parity file, and is left unchanged; or another process
            is writing it.
        """
        self._path = path.absolute() if path else None
        self._lock = self._locked()
        self._cells: dict[tuple[str, CellKey], CellResult] = {}
        try:
            known = _read(self._path) if self._path and self._path.exists() else None
            here = execution_environment.get("git_revision")
            there = known.execution_environment.get("git_revision") if known else None
            if resume and known and known.cells and here != there:
                raise ParityFileError(
                    f"{path} is from revision {there} of the suite, not {here}; choose another file"
                )
        except ParityFileError:
            self._release()
            raise
        if resume and known:
            self._cells = {(cell.device, cell.key): cell for cell in known.cells}
        self._head = {
            "schema_version": SCHEMA_VERSION,
            "kind": _KIND,
            "started": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "command": list(command),
            "execution_environment": dict(execution_environment),
        }
        self._tail: dict[str, Any] = {"drift": [], "counts": None, "exit_code": None}
        self._written_at = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.flush()
        finally:
            self._release()

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.release()

    def _locked(self) -> FileLock | None:
        if self._path is None:
            return None
        lock = FileLock(self._path.parent / f".{self._path.name}.lock")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            lock.acquire(timeout=0)
        except Timeout:
            raise ParityFileError(
                f"another `cbs parity` run is writing {self._path}; wait for it to finish, or "
                "choose another file with -o"
            ) from None
        except OSError as error:
            raise ParityFileError(f"{self._path} cannot be written: {error}") from error
        return lock

    def settled(self, device: str) -> dict[CellKey, CellResult]:
        """Returns the results that can be reused: the same packages made them, if installed."""
        environment: Any = self._head["execution_environment"]
        packages = environment.get("python_environment", ())
        here = {canonicalize_name(item["name"]): item["version"] for item in packages}
        return {
            key: attrs.evolve(cell, expected=msgspec.UNSET)
            for (where, key), cell in self._cells.items()
            if where == device and cell.status in SETTLED and cell.phase != "import"
            # A cell that ended before its packages were loaded may end otherwise with other ones.
            if cell.versions or cell.status is Status.OK
            if all(here.get(canonicalize_name(n), v) == v for n, v in cell.versions.items())
        }

    def put(self, result: CellResult) -> None:
        """Stores a result, replacing an older one of the same cell.

        Raises:
          ParityFileError: the file cannot be written.
        """
        self._cells[(result.device, result.key)] = result
        if time.monotonic() - self._written_at > _WRITE_EVERY_S:
            self.flush()

    def finish(
        self,
        *,
        expected: Mapping[CellKey, str],
        drift: Iterable[Mapping[str, Any]],
        counts: Mapping[str, int],
        exit_code: int,
        device: str,
    ) -> None:
        """Adds information that is available after all cells have ended.

        Raises:
          ParityFileError: the file cannot be written.
        """
        for key, reason in expected.items():
            place = (device, key)
            self._cells[place] = attrs.evolve(self._cells[place], expected=reason)
        self._tail = {"drift": list(drift), "counts": dict(counts), "exit_code": exit_code}
        self.flush()

    def flush(self) -> None:
        """Writes the current state.

        Raises:
          ParityFileError: the file cannot be written.
        """
        self._written_at = time.monotonic()
        if self._path is None:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            cells = [plain(cell) for cell in self._cells.values()]
            write_atomically(self._path, {**self._head, "cells": cells, **self._tail})
        except OSError as error:
            raise ParityFileError(f"{self._path} cannot be written: {error}") from error


@attrs.frozen
class _File:
    schema_version: Literal[1]
    kind: Literal["parity"]
    cells: tuple[CellResult, ...]
    execution_environment: dict[str, Any] = attrs.field(factory=dict)


def _read(path: Path) -> _File:
    try:
        return msgspec.json.decode(path.read_bytes(), type=_File)
    except OSError as error:
        raise ParityFileError(f"{path} cannot be read: {error}") from error
    except (ValueError, RecursionError) as error:
        raise ParityFileError(
            f"{path} is not a `cbs parity` results file ({error}) and was left unchanged; choose "
            "another file with -o"
        ) from error
