"""Runs the cells of a matrix once each, without timing, several in parallel.

A matrix contains no timings, so cells may run in parallel as long as they do not compete for
resources: each lane has its own CPUs, one worker at a time, and its share of the memory.
"""

import concurrent.futures
import itertools
import os
import re
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import attrs

from comparative_benchmark.analysis.machine.host import usable_cpus
from comparative_benchmark.analysis.machine.other_processes import default_limit_bytes
from comparative_benchmark.engine.checks import OutputChecks, note_end
from comparative_benchmark.engine.messages import Timeline
from comparative_benchmark.engine.participant import Participant
from comparative_benchmark.engine.preparation import Preparation
from comparative_benchmark.engine.session import Hidden, InProcessSession, Session
from comparative_benchmark.engine.session_pool import SessionPool
from comparative_benchmark.engine.settings import ProcessPlan, RunSettings
from comparative_benchmark.engine.trial import Competitor, Trial
from comparative_benchmark.results.outcome import ProcessRecord
from comparative_benchmark.results.record import Status
from comparative_benchmark.studies.parity.grid import (
    SETTLED,
    Cell,
    CellKey,
    CellResult,
    result_of,
    unsupported,
)
from openxla.benchmark.artifacts.workload_store import WorkloadArtifacts
from openxla.benchmark.files import temporary_folder

# Upper limit for a tiny model and its compiler; larger models are run again alone.
_MEMORY_OF_A_LANE_BYTES = 4 * 2**30

Job = tuple[Cell, Trial]

# Cells of one column that a lane takes at a time: enough to amortize the start of a worker, few
# enough for all lanes to end at about the same time.
_BATCH = 32
# These are not run again alone; running in parallel does not cause wrong outputs.
_CERTAIN = (*SETTLED, Status.WRONG_OUTPUT)


class Lane:
    """Runs cells in sequence, in workers that they may share."""

    def __init__(self, settings: RunSettings, preparation: Preparation, folder: Path) -> None:
        self._settings = settings
        self._preparation = preparation
        folder.mkdir()
        self._pool = SessionPool(
            folder=folder, log_dir=settings.log_dir, label=folder.name, hidden=Hidden.of()
        )

    def run(self, cell: Cell, trial: Trial) -> CellResult | None:
        """Returns the result of a cell; None if the lane was stopped."""
        started = time.monotonic()
        artifacts = self._preparation.artifacts.get(trial.workload.digest)
        if artifacts is None:
            record = ProcessRecord()
            note_end(record, self._preparation.failures[trial.case.name])
            return result_of(cell, trial, record, time.monotonic() - started)
        trial = attrs.evolve(trial, noise=self._preparation.noise_of(trial))
        name = re.sub(r"[^\w.+-]+", "-", str(cell.column)) + trial.case.model.own_process_suffix
        shared = self._pool.has_served(name)
        record = self._run_cell(name, trial, artifacts)
        note = None
        if shared and record.status not in SETTLED:
            first, record = record, self._run_cell(name, trial, artifacts)
            if record.status is not first.status:
                note = (
                    f"{first.status.value} in a worker that had run other models "
                    f"({first.reason}); this result is from a new worker"
                )
        if self._pool.stopped:
            return None
        return result_of(cell, trial, record, time.monotonic() - started, note)

    def stop(self) -> None:
        """Ends its worker, from another thread; `run` then returns soon."""
        self._pool.stop()

    def close(self) -> None:
        """Ends its worker; called by the thread that ran its cells."""
        self._pool.empty()

    def _run_cell(self, name: str, trial: Trial, artifacts: WorkloadArtifacts) -> ProcessRecord:
        """Loads, compiles, runs on both inputs and verifies; a failure ends the worker."""

        def shared(
            settings: RunSettings, competitor: Competitor, plan: ProcessPlan
        ) -> Session | InProcessSession:
            return self._pool.get(name, settings, competitor.backend, track=plan.track)

        with tempfile.TemporaryDirectory(
            dir=self._pool.folder, ignore_cleanup_errors=True
        ) as folder:
            plan = ProcessPlan(
                replicate=0,
                work_dir=Path(folder),
                cache_dir=Path(folder),
                log_file=self._pool.log_file(name),
                cold=False,  # consecutive cells share the worker's caches
                track=Timeline().process(str(trial)),
                framework=trial.case.model.model_impl.framework_type.value,
            )
            with Participant(trial, artifacts, self._settings, plan, shared) as participant:
                participant.start()
                participant.check(
                    OutputChecks.verify_rest, OutputChecks.verify_second, OutputChecks.verify_update
                )
        if participant.record.status not in SETTLED:
            self._pool.empty()
        return participant.record


def default_jobs(accelerator: str, memory_bytes: int | None) -> int:
    """Returns the number of parallel cells: one per CPU, as far as memory allows.

    Args:
      accelerator: type of the device; only CPUs are shared, because JAX and TensorFlow allocate
        most of an accelerator's memory at startup.
      memory_bytes: memory limit of a worker; None for 4 GiB.
    """
    if accelerator != "cpu":
        return 1
    fitting = default_limit_bytes() // (memory_bytes or _MEMORY_OF_A_LANE_BYTES)
    return max(1, min(usable_cpus(), fitting))


def shares(settings: RunSettings, count: int, memory_bytes: int | None) -> list[RunSettings]:
    """Divides CPUs, threads and memory among lanes; a single lane has all.

    Args:
      settings: settings of a lane that uses the whole machine.
      count: number of lanes.
      memory_bytes: memory limit of a worker; None for an equal share of the limit in `settings`.
    """
    if count == 1:
        return [settings]
    usable = sorted(os.sched_getaffinity(0))
    each = max(1, len(usable) // count)
    # With more lanes than CPUs, leave the assignment to the operating system.
    pins = len(usable) >= count
    memory = memory_bytes or settings.limits.memory_bytes // count
    return [
        attrs.evolve(
            settings,
            threads=min(settings.threads, each),
            cpus=tuple(usable[number * each : (number + 1) * each]) if pins else (),
            limits=attrs.evolve(settings.limits, memory_bytes=memory),
        )
        for number in range(count)
    ]


def run_all(
    lanes: Sequence[Lane],
    batches: Iterable[Sequence[Job]],
    finished: Callable[[Job, CellResult], None],
) -> None:
    """Runs all cells; lanes take one batch after another and call `finished` for each cell.

    An error in any lane, or Ctrl-C, stops all lanes.
    """
    waiting = deque(batches)

    def work(lane: Lane) -> None:
        try:
            while True:
                try:
                    batch = waiting.popleft()
                except IndexError:
                    return
                for job in batch:
                    if (result := lane.run(*job)) is None:
                        return
                    finished(job, result)
        finally:
            lane.close()

    with concurrent.futures.ThreadPoolExecutor(len(lanes)) as pool:
        futures = [pool.submit(work, lane) for lane in lanes]
        try:
            for future in concurrent.futures.as_completed(futures):
                future.result()
        except BaseException:
            for lane in lanes:
                lane.stop()
            raise


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
            keep(_result_alone(result, beside[result.key]))

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


def _result_alone(alone: CellResult, first: CellResult) -> CellResult:
    """Returns the result of the run alone, with a note if the parallel run had another status."""
    if first.status is alone.status:
        return alone
    note = (
        f"{first.status.value} in parallel with other cells ({first.reason}); this result is from "
        "a separate run"
    )
    return attrs.evolve(alone, note="; ".join(filter(None, (note, alone.note))))
