"""Runs the cells of a matrix once each, without timing, several in parallel."""

import itertools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import attrs

from comparative_benchmark.engine.preparation import Preparation
from comparative_benchmark.engine.settings import RunSettings
from comparative_benchmark.results.record import Status
from comparative_benchmark.studies.parity.cell_result import CellResult, unsupported
from comparative_benchmark.studies.parity.grid import Cell, CellKey
from comparative_benchmark.studies.parity.lanes import Job, Lane, run_all, shares
from openxla.benchmark.artifacts.workload_store import WorkloadArtifacts
from openxla.benchmark.temporary import temporary_folder

# Cells of one column that a lane takes at a time: enough to amortize the start of a worker, few
# enough for all lanes to end at about the same time.
_BATCH = 32
# These are not run again alone; running in parallel does not cause wrong outputs.
_CERTAIN = (Status.OK, Status.UNSUPPORTED, Status.WRONG_OUTPUT)


class Observer(Protocol):
    """Receives progress; its methods are never called concurrently."""

    def preparing(self, what: str) -> None:
        """Called when artifacts are being created."""

    def cell_finished(self, result: CellResult, position: int, total: int) -> None:
        """Called when a cell has ended; positions start at 1."""

    def cell_postponed(self, result: CellResult) -> None:
        """Called when a cell failed in parallel with others; it will be run again alone."""


class Runner:
    """Runs cells; afterwards, `artifacts` contains the artifacts of their workloads, by digest.

    Args:
      settings: settings of a cell that uses the whole machine.
      observer: receives progress.
      keep: called with each result.
      jobs: number of parallel cells.
      memory_bytes: memory limit of a worker; None for an equal share of the limit in `settings`.
    """

    def __init__(
        self,
        settings: RunSettings,
        observer: Observer,
        keep: Callable[[CellResult], None],
        *,
        jobs: int = 1,
        memory_bytes: int | None = None,
    ) -> None:
        self.artifacts: Mapping[str, WorkloadArtifacts] = {}
        self._settings = settings
        self._observer = observer
        self._keep = keep
        self._jobs = jobs
        self._memory_bytes = memory_bytes

    def run(self, cells: Sequence[Cell]) -> list[CellResult]:
        """Returns the results of all cells, beginning with those that cannot be run.

        Each result is stored immediately. Cells are ordered by competitor and framework, so that
        they can share workers. Cells that fail in parallel, except with wrong outputs, are run
        again alone at the end, with the whole machine; that result counts.
        """
        results = []
        pending: list[Job] = []
        for cell in cells:
            if cell.trial is None:
                result = unsupported(cell, self._settings.device.name)
                self._keep(result)
                results.append(result)
            else:
                pending.append((cell, cell.trial))
        preparation = Preparation(self._settings, self._observer.preparing)
        preparation.run([trial for _, trial in pending])
        self.artifacts = preparation.artifacts
        postponed: list[Job] = []
        beside: dict[CellKey, CellResult] = {}
        position = 0
        lock = threading.Lock()

        def keep(result: CellResult) -> None:
            nonlocal position
            self._keep(result)
            results.append(result)
            position += 1
            self._observer.cell_finished(result, position, len(pending))

        def finished(job: Job, result: CellResult) -> None:
            with lock:
                if count > 1 and result.status not in _CERTAIN:
                    postponed.append(job)
                    beside[result.key] = result
                    self._observer.cell_postponed(result)
                else:
                    keep(result)

        def finished_alone(_: Job, result: CellResult) -> None:
            keep(_alone(result, beside[result.key]))

        batches = list(_batches(pending))
        count = max(1, min(self._jobs, len(batches)))
        divided = shares(self._settings, count, self._memory_bytes)
        with temporary_folder("parity") as root:
            lanes = [
                Lane(share, preparation, Path(root) / f"lane-{number}")
                for number, share in enumerate(divided, 1)
            ]
            run_all(lanes, batches, finished)
            alone = Lane(self._settings, preparation, Path(root) / "alone")
            run_all([alone], [postponed], finished_alone)
        return results


def _batches(pending: Sequence[Job]) -> Iterator[list[Job]]:
    """Yields batches of cells with the same competitor and framework, ordered by name."""

    def column(job: Job) -> tuple[str, str]:
        return str(job[1].competitor), job[0].column.framework.value

    for _, same in itertools.groupby(sorted(pending, key=column), column):
        cells = list(same)
        for start in range(0, len(cells), _BATCH):
            yield cells[start : start + _BATCH]


def _alone(alone: CellResult, first: CellResult) -> CellResult:
    """Returns the result of the run alone, with a note if the parallel run had another status."""
    if first.status is alone.status:
        return alone
    note = (
        f"{first.status.value} in parallel with other cells ({first.reason}); this result is from "
        "a run alone"
    )
    return attrs.evolve(alone, note="; ".join(filter(None, (note, alone.note))))
