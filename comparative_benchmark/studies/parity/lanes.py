"""Lanes: run cells in parallel, each lane with its own CPUs and one worker at a time.

A matrix contains no timings, so cells may run in parallel as long as they do not compete for
resources: a lane's workers are pinned to its CPUs and limited to its share of the memory.
"""

import concurrent.futures
import os
import re
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import attrs

from comparative_benchmark.analysis.machine.host import usable_cpus
from comparative_benchmark.analysis.machine.other_processes import default_limit_bytes
from comparative_benchmark.engine.messages import Timeline
from comparative_benchmark.engine.participant import Participant, ProcessPlan, note_end
from comparative_benchmark.engine.preparation import Preparation
from comparative_benchmark.engine.session import Hidden, InProcessSession, Session, SessionEnded
from comparative_benchmark.engine.session_pool import SessionPool
from comparative_benchmark.engine.settings import RunSettings
from comparative_benchmark.engine.trial import Competitor, Trial
from comparative_benchmark.results.outcome import ProcessRecord
from comparative_benchmark.results.record import Status
from comparative_benchmark.studies.parity.cell_result import CellResult, result_of
from comparative_benchmark.studies.parity.grid import Cell
from openxla.benchmark.artifacts.workload_store import WorkloadArtifacts

# Upper limit for a tiny model and its compiler; larger models are run again alone.
_MEMORY_OF_A_LANE_BYTES = 4 * 2**30
_SETTLED = (Status.OK, Status.UNSUPPORTED)

Job = tuple[Cell, Trial]


class Lane:
    """Runs cells in sequence, in workers that they may share."""

    def __init__(self, settings: RunSettings, preparation: Preparation, folder: Path) -> None:
        self._settings = settings
        self._preparation = preparation
        self._artifacts: Mapping[str, WorkloadArtifacts] = preparation.artifacts
        self._failures: Mapping[str, SessionEnded] = preparation.failures
        folder.mkdir()
        self._pool = SessionPool(
            folder=folder, log_dir=settings.log_dir, label=folder.name, hidden=Hidden.of()
        )

    def run(self, cell: Cell, trial: Trial) -> CellResult | None:
        """Returns the result of a cell; None if the lane was stopped."""
        started = time.monotonic()
        artifacts = self._artifacts.get(trial.workload.digest)
        if artifacts is None:
            record = ProcessRecord()
            note_end(record, self._failures[trial.case.name])
            return result_of(cell, trial, record, time.monotonic() - started)
        trial = attrs.evolve(trial, noise=self._preparation.noise_of(trial))
        name = re.sub(r"[^\w.+-]+", "-", str(cell.column)) + trial.case.model.own_process_suffix
        shared = self._pool.has_served(name)
        record = self._once(name, trial, artifacts)
        note = None
        if shared and record.status not in _SETTLED:
            first, record = record, self._once(name, trial, artifacts)
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

    def _once(self, name: str, trial: Trial, artifacts: WorkloadArtifacts) -> ProcessRecord:
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
                participant.verify_rest()
                participant.verify_second()
                participant.verify_update()
        if participant.record.status not in _SETTLED:
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
