"""The result of a cell."""

from typing import Any

import attrs
from msgspec import UNSET, UnsetType

from comparative_benchmark.engine.trial import Trial
from comparative_benchmark.results.outcome import ProcessRecord
from comparative_benchmark.results.record import Status
from comparative_benchmark.studies.parity.grid import Cell, CellKey


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
