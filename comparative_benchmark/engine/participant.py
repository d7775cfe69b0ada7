"""One competitor of a race: its worker is started, warmed up, measured in blocks, and closed.

Worker failures do not raise: `alive` becomes false, and `record` holds how the worker ended.
"""

import statistics
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Self

import attrs

from comparative_benchmark.analysis.stats.planning import SamplingRule
from comparative_benchmark.analysis.stats.steadiness import (
    noise_converged,
    relative_precision,
    steadiness,
)
from comparative_benchmark.analysis.verification.plausibility import TimedBlock
from comparative_benchmark.backends.api import recorded_packages
from comparative_benchmark.engine.checks import OutputChecks, note_end, note_report, take_profile
from comparative_benchmark.engine.messages import Compiled, Loaded, Measured
from comparative_benchmark.engine.session import InProcessSession, Session, SessionEnded
from comparative_benchmark.engine.settings import ProcessPlan, RunSettings
from comparative_benchmark.engine.trial import Competitor, Trial
from comparative_benchmark.results.outcome import ProcessRecord, sound_and_void
from comparative_benchmark.results.record import Block, ProfileRecord, Status
from openxla.benchmark.artifacts.workload_store import WorkloadArtifacts

_LONGEST_REASON = 4000

_WARM_UP: Mapping[str, bool] = MappingProxyType({"warm_up": True})


# Starts the worker of a process; raises `SessionEnded` if it does not start.
OpenSession = Callable[[RunSettings, Competitor, ProcessPlan], Session | InProcessSession]


def own_session(
    settings: RunSettings, competitor: Competitor, plan: ProcessPlan
) -> Session | InProcessSession:
    """Starts a worker for this process alone; raises `SessionEnded` if it does not start."""
    return settings.open_session(
        competitor.backend,
        competitor.environment,
        work_dir=plan.work_dir,
        cache_dir=plan.cache_dir,
        log_file=plan.log_file,
        track=plan.track,
        hidden=plan.hidden,
    )


@attrs.define(eq=False)
class Participant:
    """Runs one worker of a trial through its phases."""

    trial: Trial
    _artifacts: WorkloadArtifacts
    _settings: RunSettings
    plan: ProcessPlan
    _open_session: OpenSession = own_session
    record: ProcessRecord = attrs.field(init=False)
    iterations_per_block: int = attrs.field(default=1, init=False)
    refreshes: bool = attrs.field(default=True, init=False)
    exports: Mapping[str, Sequence[str]] = attrs.field(factory=dict, init=False)
    loaded: bool = attrs.field(default=False, init=False)
    _interrupted: bool = attrs.field(default=False, init=False)
    _precision: list[float] = attrs.field(factory=list, init=False)
    _blocks: list[Block] = attrs.field(factory=list, init=False)
    _timed: list[TimedBlock] = attrs.field(factory=list, init=False)
    _stack: ExitStack = attrs.field(factory=ExitStack, init=False)
    _session: Session | InProcessSession | None = attrs.field(default=None, init=False)
    _checks: OutputChecks = attrs.field(init=False)

    @record.default
    def _new_record(self) -> ProcessRecord:
        workload = self.trial.workload.digest
        return ProcessRecord(
            log_file=str(self.plan.log_file), cold=self.plan.cold, workload=workload
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Ends the worker; kills it without a request if an exception is propagating."""
        self._session = None
        self._stack.__exit__(kind, error, traceback)

    @property
    def alive(self) -> bool:
        """Whether the worker can still be measured."""
        return self._session is not None

    @property
    def outputs(self) -> Sequence[Path]:
        """Files of the outputs that were verified last; they exist until the race ends."""
        return self._checks.outputs

    def start(self) -> None:
        """Starts the worker, loads, compiles and verifies the first output."""
        self.load()
        self.compile()

    def load(self) -> None:
        """Starts the worker, loads the model and pauses the worker until it compiles."""
        self.loaded = True
        with self._ending("start"):
            session = self._open_session(self._settings, self.trial.competitor, self.plan)
            self._stack.push(session)
            self._session = session
            self._checks = OutputChecks(
                self.trial, self._artifacts, self.plan, self.record, session
            )
            self.record.truth_not_isolated = session.truth_not_isolated
            if self._interrupted:
                raise SessionEnded(Status.FAILED, "start", "the run was interrupted")
            loaded = session.call(Loaded, **self._load_arguments())
            self.record.versions = loaded.versions
            self.record.timer_ns = loaded.timer_ns
            self.record.variables = self._without_paths(loaded.variables)
            note_report(self.record, loaded)
        self.pause()

    def compile(self) -> None:
        """Compiles and verifies the first output."""
        if self._session is None:
            return
        self.resume()
        with self._ending("compile"):
            compiled = self._session.call(Compiled)
            self.exports = compiled.exports
            note_report(self.record, compiled)
            self._checks.verify_first_run()

    def interrupt(self) -> None:
        """Kills the worker; may be called from a thread other than the one that loads it."""
        self._interrupted = True
        if isinstance(self._session, Session):
            self._session.interrupt()

    def warm_up(self, iterations: int) -> None:
        """Runs a fixed number of iterations."""
        if iterations and (block := self._measure(iterations, wanted=_WARM_UP, part="warm-up")):
            self.record.warmup_latencies_ms += block.latencies_ms

    def warm_up_until_steady(self, rule: SamplingRule) -> None:
        """Runs until the half-split test detects no trend, or the warm-up budget is spent.

        Slow models still run enough iterations for the test. Afterwards sets the number of
        iterations per block.
        """
        samples = self.record.warmup_latencies_ms
        verdict = None
        while self.alive and not rule.is_warm_up_spent(samples):
            iterations = rule.warmup_iterations(samples)
            if not (block := self._measure(iterations, wanted=_WARM_UP, part="warm-up")):
                return
            samples += block.latencies_ms
            verdict = steadiness(rule.warm_up_end(samples))
            if verdict.steady and rule.is_warm_up_enough(samples):
                break
        if verdict is None:
            return
        self.record.steadiness = verdict
        if not verdict.steady:
            reason = f"not steady after {sum(samples) / 1e3:.0f} s of warm-up: {verdict.reason}"
            self._end(SessionEnded(Status.UNSTEADY, "warm_up", reason))
            return
        median_ms = statistics.median(rule.warm_up_end(samples))
        self.iterations_per_block = rule.iterations_per_block(median_ms, self.record.timer_ns or 0)
        self.refreshes = rule.refreshes(median_ms)

    def measure_block(self, round_index: int, iterations: int, *, refresh: bool = False) -> None:
        """Measures one block; `refresh` first runs an unmeasured iteration, if that helps."""
        wanted = {"device_times": True, "refresh": refresh and self.refreshes}
        note = {"part": "round", "round": round_index}
        if block := self._measure(iterations, wanted, **note):
            self._blocks.append(attrs.evolve(block, round=round_index))
            # A later block may reveal that the GPU clock was low during an earlier one.
            self.record.blocks, self.record.void_blocks = sound_and_void(self._blocks)

    def why_enough_rounds(self, rule: SamplingRule) -> str | None:
        """Returns why further rounds of this process are not worthwhile; None if they are.

        Each process must reach half of the goal; the other half is left to the spread between
        processes.
        """
        if len(self.record.blocks) < rule.min_rounds:
            return None
        samples = self.record.latencies_ms
        self._precision.append(relative_precision(samples))
        if self._precision[-1] <= rule.goal / 2:
            return "precision"
        return "noise" if noise_converged(self._precision) else None

    def pause(self) -> None:
        """Stops the worker so that it does not take time from the one being measured."""
        if isinstance(self._session, Session):
            self._session.pause()

    def resume(self) -> None:
        """Resumes the worker."""
        if isinstance(self._session, Session):
            self._session.resume()

    def check(self, *checks: Callable[[OutputChecks], object]) -> None:
        """Runs checks in order; the first that fails ends the participation."""
        if self._session is None:
            return
        with self._ending("verify"):
            for check in checks:
                check(self._checks)

    def finish(self) -> None:
        """Checks times and outputs after the timed rounds, and measures the parts.

        The worker is then paused until it is profiled or closed.
        """
        if self._session is None:
            return
        void = self.record.void_blocks
        if len(void) > len(self.record.blocks):
            reason = f"{len(void)} of {len(self._blocks)} blocks are void: {void[-1].void}"
            self._end(SessionEnded(Status.UNSTEADY, "measure", reason))
            return
        self.resume()
        self.check(
            lambda checks: checks.check_times(self._timed),
            OutputChecks.verify_last_run,
            OutputChecks.verify_rest,
            OutputChecks.measure_accuracy,
            OutputChecks.verify_second,
            OutputChecks.verify_update,
            OutputChecks.require_compiled,
            # Last, because a worker may die of it and keep its speed.
            self._measure_parts,
        )
        self.pause()

    def forget_peaks(self) -> None:
        """Clears peaks that may be due to other models that the worker has served."""
        if self.record.host_memory_base_bytes is not None:
            return
        self.record.host_memory_peak_bytes = None
        self.record.phases = {
            name: attrs.evolve(phase, host_memory_peak_bytes=None)
            for name, phase in self.record.phases.items()
        }

    def profile(self, directory: Path, latencies_ms: Sequence[float] = ()) -> ProfileRecord | None:
        """Profiles a finished worker and ends it; see `take_profile`."""
        taken = self.take_profile(directory, latencies_ms)
        self.close()
        return taken

    def take_profile(
        self, directory: Path, latencies_ms: Sequence[float] = ()
    ) -> ProfileRecord | None:
        """Profiles a finished worker; None if it has failed. The record is unchanged.

        Args:
          directory: folder for the files.
          latencies_ms: latencies of an iteration, for a worker that has measured none.
        """
        if self._session is None:
            return None
        self.resume()
        return take_profile(self._session, directory, self.record.latencies_ms or latencies_ms)

    def cpu_ms(self) -> float | None:
        """Returns the CPU time of the worker; None if it has ended or the time cannot be read."""
        return None if self._session is None else self._session.cpu_ms()

    def close(self) -> None:
        """Ends the worker if it is still running."""
        self._session = None
        self._stack.close()

    def resident_bytes(self) -> int:
        """Returns the current memory use of the worker, in bytes."""
        return self._session.resident_bytes() if isinstance(self._session, Session) else 0

    def _measure(
        self, iterations: int, wanted: Mapping[str, bool] = MappingProxyType({}), **note: Any
    ) -> Block | None:
        if self._session is None:
            return None
        self.plan.track.note(**note)
        block = None
        with self._ending("measure"):
            cpu_ms, started = self._session.cpu_ms(), time.monotonic()
            answer = self._session.call(Measured, iterations=iterations, **wanted)
            seen_ms, cpu_after_ms = (time.monotonic() - started) * 1e3, self._session.cpu_ms()
            block = _block(answer.block, iterations)
            self._timed.append(
                TimedBlock(
                    samples_ms=sum(block.latencies_ms),
                    iterations=len(block.latencies_ms),
                    extra=len(block.device_ms) + bool(wanted.get("refresh")),
                    wall_ms=block.wall_ms or 0.0,
                    cpu_ms=block.cpu_ms or 0.0,
                    seen_ms=seen_ms,
                    seen_cpu_ms=None
                    if cpu_ms is None or cpu_after_ms is None
                    else cpu_after_ms - cpu_ms,
                )
            )
        return block if self.alive else None

    def _measure_parts(self, checks: OutputChecks) -> None:
        if not checks.measure_parts():
            self.close()

    def _without_paths(self, variables: Mapping[str, str]) -> dict[str, str]:
        """Replaces folders that differ between processes with placeholders."""
        folders = {str(self.plan.work_dir): "{work_dir}", str(self.plan.cache_dir): "{cache_dir}"}
        if isinstance(self._session, Session):
            folders |= self._session.folders
        replaced = dict(variables)
        for folder, field in folders.items():
            replaced = {name: value.replace(folder, field) for name, value in replaced.items()}
        return replaced

    def _load_arguments(self) -> Mapping[str, Any]:
        competitor, model = self.trial.competitor, self.trial.case.model
        return {
            "implementation": competitor.backend.implementation,
            "context": {
                "compiler": competitor.compiler.name,
                "accelerator": competitor.compiler.accelerator,
                "options": list(competitor.options),
                "device": self.trial.device_fields,
                "threads": self._settings.threads,
                "work_dir": str(self.plan.work_dir),
                "exported": dict(self.plan.exports)
                or (self.trial.program.paths if self.trial.program else {}),
                "kept": bool(self.plan.exports),
                "outputs": self._settings.outputs,
            },
            "module_path": model.model_impl.module_path,
            "parameters": dict(model.model_parameters),
            "inputs": [str(path) for path in self._artifacts.inputs],
            "packages": recorded_packages(),
        }

    @contextmanager
    def _ending(self, phase: str) -> Iterator[None]:
        """Ends the participation if the worker fails or its files cannot be read.

        A worker's files may contain anything, so an exception while reading them counts as a
        failure of the worker and does not affect other trials.
        """
        try:
            yield
        except SessionEnded as ended:
            self._end(ended)
        except Exception as error:
            reason = f"the worker's outputs cannot be used: {type(error).__name__}: {error}"
            self._end(SessionEnded(Status.FAILED, phase, reason[:_LONGEST_REASON]))
            self.record.traceback = "".join(traceback.format_exception(error))[-20000:]

    def _end(self, ended: SessionEnded) -> None:
        note_end(self.record, ended)
        self.close()


def _block(block: Block, iterations: int) -> Block:
    if len(block.latencies_ms) != iterations:
        reason = f"latencies from the worker: expected {iterations}, got {len(block.latencies_ms)}"
        raise SessionEnded(Status.FAILED, "measure", reason)
    ratio = block.cpu_ms / block.wall_ms if block.cpu_ms is not None and block.wall_ms else None
    judged = block.conditions.contended if block.conditions else None
    return attrs.evolve(block, cpu_wall_ratio=ratio, contended=judged)
