"""Runs the cells of a matrix: each once, without timing, several side by side."""

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

# Cells of one column that go to a lane together: enough to make the start of a worker cheap, few
# enough for all lanes to end at about the same time.
_BATCH = 32
# What needs no second run alone: a wrong output does not come of having neighbours.
_CERTAIN = (Status.OK, Status.UNSUPPORTED, Status.WRONG_OUTPUT)


class Observer(Protocol):
    """Is told what happens while it happens; never by two threads at a time."""

    def preparing(self, what: str) -> None:
        """Artifacts are being made."""

    def cell_finished(self, result: CellResult, position: int, total: int) -> None:
        """A cell has ended; the first one has position 1."""

    def cell_postponed(self, result: CellResult) -> None:
        """A cell failed beside others; it will be run again alone."""


class Runner:
    """Runs cells; `artifacts` holds the artifacts of their workloads afterwards, by digest.

    Args:
      settings: of a cell that has the machine to itself.
      observer: is told of progress.
      keep: is given each result.
      jobs: how many cells run at a time.
      memory_bytes: what a worker may use; None for its share of what the settings allow.
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
        """Returns what came of each cell; those that cannot be run come first.

        Each result is kept as soon as it is there. Cells go competitor by competitor, and
        framework by framework within one, so that they can share workers. What fails beside
        others, wrong outputs apart, is run again when all have ended, with the whole machine: that
        run counts.
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
    """Yields cells of one competitor and framework together, in the order of their names."""

    def column(job: Job) -> tuple[str, str]:
        return str(job[1].competitor), job[0].column.framework.value

    for _, same in itertools.groupby(sorted(pending, key=column), column):
        cells = list(same)
        for start in range(0, len(cells), _BATCH):
            yield cells[start : start + _BATCH]


def _alone(alone: CellResult, first: CellResult) -> CellResult:
    """Returns the result of the run alone, with a note where that beside others was another."""
    if first.status is alone.status:
        return alone
    note = (
        f"{first.status.value} in parallel with other cells ({first.reason}); this result is from "
        "a run alone"
    )
    return attrs.evolve(alone, note="; ".join(filter(None, (note, alone.note))))
