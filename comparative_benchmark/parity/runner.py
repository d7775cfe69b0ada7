"""Runs the cells of a matrix: each once, without timing, in workers that cells may share."""

import re
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import attrs

from comparative_benchmark.harness.participant import Participant, note_end
from comparative_benchmark.harness.preparation import Preparation
from comparative_benchmark.harness.settings import RunSettings
from comparative_benchmark.harness.trace import Timeline
from comparative_benchmark.harness.trial import ProcessRecord, Status, Trial
from comparative_benchmark.parity.grid import Cell, CellKey
from comparative_benchmark.parity.shared_worker import SharingSettings, WorkerSlot
from openxla.benchmark.artifacts.workload_store import WorkloadArtifacts

_SETTLED = (Status.OK, Status.UNSUPPORTED)


@attrs.frozen(kw_only=True)
class CellResult:
    """What came of a cell; plain JSON values.

    Attributes:
      workload: digest; `workload_id` is for people.
      label: of the row.
      framework: of the model, as `cbs list --framework` spells it.
      competitor: `backend:compiler+options`.
      device: where it ran.
      case: name of the benchmark case; None where a framework has no implementation.
      status: as in results, see `Status`.
      phase: where it ended; with `reason` unless it is `ok`.
      relative_error: root mean square error of the output against the float64 truth, over the
        truth's root mean square.
      allowed_relative_error: what would just have passed.
      max_abs_error: of an element.
      wall_s: seconds that the cell took.
      log_file: what its worker printed; cells that shared a worker share the file.
      traceback: of the worker, where there was one.
      versions: of the packages that the worker had imported.
      note: what else is to be known of how it ran.
    """

    workload: str
    workload_id: str
    label: str
    framework: str
    competitor: str
    device: str
    case: str | None = None
    status: str
    phase: str | None = None
    reason: str | None = None
    relative_error: float | None = None
    allowed_relative_error: float | None = None
    max_abs_error: float | None = None
    wall_s: float = 0.0
    log_file: str | None = None
    traceback: str | None = None
    versions: Mapping[str, str] = attrs.field(factory=dict, hash=False)
    note: str | None = None

    @property
    def key(self) -> CellKey:
        """As `Cell.key`."""
        return (self.workload, self.case or self.label, self.framework, self.competitor)


class Observer(Protocol):
    """Is told what happens while it happens."""

    def preparing(self, what: str) -> None:
        """Artifacts are being made."""

    def cell_finished(self, result: CellResult, position: int, total: int) -> None:
        """A cell has ended; the first one has position 1."""


class Runner:
    """Runs cells; `artifacts` holds the artifacts of their workloads afterwards, by digest."""

    def __init__(
        self,
        settings: RunSettings,
        observer: Observer,
        keep: Callable[[CellResult], None],
    ) -> None:
        self.artifacts: Mapping[str, WorkloadArtifacts] = {}
        self._settings = settings
        self._observer = observer
        self._keep = keep

    def run(self, cells: Sequence[Cell]) -> list[CellResult]:
        """Returns what came of each cell; those that can not be run come first.

        Each result is kept before the next cell starts. Cells go competitor by competitor, and
        framework by framework within one, so that they can share workers.
        """
        results = []
        pending = []
        for cell in cells:
            if cell.trial is None:
                result = _unsupported(cell, self._settings.device.name)
                self._keep(result)
                results.append(result)
            else:
                pending.append((cell, cell.trial))
        preparation = Preparation(self._settings, self._observer.preparing)
        preparation.run([trial for _, trial in pending])
        self.artifacts = preparation.artifacts
        pending.sort(key=lambda item: (str(item[1].competitor), item[0].column.framework.value))
        with tempfile.TemporaryDirectory(prefix="cbs-parity-", ignore_cleanup_errors=True) as root:
            slot = WorkerSlot(folder=Path(root), log_dir=self._settings.log_dir)
            try:
                for position, (cell, trial) in enumerate(pending, 1):
                    result = self._run(cell, trial, preparation, slot)
                    self._keep(result)
                    results.append(result)
                    self._observer.cell_finished(result, position, len(pending))
            finally:
                slot.empty()
        return results

    def _run(
        self, cell: Cell, trial: Trial, preparation: Preparation, slot: WorkerSlot
    ) -> CellResult:
        started = time.monotonic()
        artifacts = preparation.artifacts.get(trial.workload.digest)
        if artifacts is None:
            record = ProcessRecord()
            note_end(record, preparation.failures[trial.case.name])
            return _result(cell, trial, record, time.monotonic() - started)
        name = re.sub(r"[^\w.+-]+", "-", str(cell.column))
        if slot.name != name:
            slot.empty()
            slot.name = name
        shared = slot.served > 0
        record = self._once(trial, artifacts, slot)
        note = None
        if shared and record.status not in _SETTLED:
            first, record = record, self._once(trial, artifacts, slot)
            if record.status is not first.status:
                note = (
                    f"{first.status.value} in a worker that had served other models "
                    f"({first.reason}); this is of a fresh one"
                )
        return _result(cell, trial, record, time.monotonic() - started, note)

    def _once(self, trial: Trial, artifacts: WorkloadArtifacts, slot: WorkerSlot) -> ProcessRecord:
        """Loads, compiles, runs once and verifies; a failure ends the worker."""
        sharing = SharingSettings(
            slot=slot,
            **{
                field.name: getattr(self._settings, field.name)
                for field in attrs.fields(RunSettings)
            },
        )
        with tempfile.TemporaryDirectory(dir=slot.folder, ignore_cleanup_errors=True) as folder:
            participant = Participant(
                trial,
                artifacts,
                sharing,
                work_dir=Path(folder),
                cache_dir=Path(folder),
                log_file=slot.log_file,
                cold=True,
                track=Timeline().process(str(trial)),
            )
            try:
                participant.start()
                participant.verify_rest()
            finally:
                participant.close()
        if participant.record.status not in _SETTLED:
            slot.empty()
        return participant.record


def _unsupported(cell: Cell, device: str) -> CellResult:
    return CellResult(
        **_identity(cell, device),
        case=cell.case.name if cell.case else None,
        status=Status.UNSUPPORTED.value,
        phase="import",
        reason=cell.unsupported,
    )


def _result(
    cell: Cell, trial: Trial, record: ProcessRecord, wall_s: float, note: str | None = None
) -> CellResult:
    verification = record.final_verification or record.verification
    return CellResult(
        **_identity(cell, trial.device.name),
        case=trial.case.name,
        status=record.status.value,
        phase=record.phase,
        reason=record.reason,
        relative_error=verification.relative_rmse if verification else None,
        allowed_relative_error=verification.allowed_relative_rmse if verification else None,
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
