"""One competitor of a race: its worker is started, warmed up, measured in blocks, and closed.

Worker failures do not raise: `alive` becomes false, and `record` holds how the worker ended.
"""

import os
import shutil
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
from comparative_benchmark.analysis.verification import accuracy, plausibility
from comparative_benchmark.analysis.verification.verification import Verification, open_array
from comparative_benchmark.backends.api import recorded_packages
from comparative_benchmark.engine import details
from comparative_benchmark.engine.judging import Judge, RunWith
from comparative_benchmark.engine.messages import (
    Compiled,
    CompiledShares,
    FreshRuns,
    Loaded,
    Measured,
    Outputs,
    ProcessTrack,
    RanOn,
    RanWith,
    Report,
    Updated,
    paths_of,
)
from comparative_benchmark.engine.session import Hidden, InProcessSession, Session, SessionEnded
from comparative_benchmark.engine.settings import RunSettings
from comparative_benchmark.engine.trial import Competitor, Trial
from comparative_benchmark.results.outcome import ProcessRecord, sound_and_void
from comparative_benchmark.results.record import (
    Block,
    ProfileRecord,
    Status,
)
from openxla.benchmark.artifacts import array_files
from openxla.benchmark.artifacts.workload_store import Due, TruthCheck, WorkloadArtifacts
from openxla.benchmark.models import architectures, trained
from openxla.benchmark.models.architectures.base import DATA_TYPES

# Possible relative error of a truth whose float64 run computes parts in float32.
_ERROR_OF_INEXACT_TRUTHS = 1e-3

_LONGEST_REASON = 4000

_WARM_UP: Mapping[str, bool] = MappingProxyType({"warm_up": True})


@attrs.frozen(kw_only=True)
class ProcessPlan:
    """One process of a trial, before it starts.

    Attributes:
      replicate: index of the process within its trial, from 0.
      work_dir: folder for files of the worker.
      cache_dir: folder for its compile caches.
      log_file: file for its output.
      cold: whether the caches are empty.
      track: its track on the timeline.
      framework: framework of the model.
      exports: exports of the trial's first process, by type; empty for a process that exports.
      compiles_anew: whether the caches are empty although the trial has compiled before.
      hidden: folders to hide from the worker; shared workers use those of their pool.
    """

    replicate: int
    work_dir: Path
    cache_dir: Path
    log_file: Path
    cold: bool
    track: ProcessTrack
    framework: str
    exports: Mapping[str, Sequence[str]] = attrs.field(factory=dict)
    compiles_anew: bool = False
    hidden: Hidden | None = None


# Phase of a result whose first output is wrong.
FIRST_VERIFICATION = "verify_first_run"

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


class Participant:
    """Runs one worker of a trial through its phases."""

    def __init__(
        self,
        trial: Trial,
        artifacts: WorkloadArtifacts,
        settings: RunSettings,
        plan: ProcessPlan,
        open_session: OpenSession = own_session,
    ) -> None:
        self.trial = trial
        self.plan = plan
        self.record = ProcessRecord(log_file=str(plan.log_file), cold=plan.cold)
        self.iterations_per_block = 1
        self.refreshes = True
        self.exports: Mapping[str, Sequence[str]] = {}
        self.loaded = False
        self._interrupted = False
        self._precision: list[float] = []
        self._blocks: list[Block] = []
        self._timed: list[plausibility.TimedBlock] = []
        self._artifacts = artifacts
        self._settings = settings
        self._open_session = open_session
        self._judge = Judge(trial, artifacts.first)
        # Files of the outputs that were verified last.
        self._outputs: list[Path] = []
        self._stack = ExitStack()
        self._session: Session | InProcessSession | None = None

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
        return self._outputs

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
            self.record.truth_not_isolated = session.truth_not_isolated
            if self._interrupted:
                raise SessionEnded(Status.FAILED, "start", "it was interrupted")
            loaded = session.call(Loaded, **self._load_arguments())
            self.record.versions = loaded.versions
            self.record.timer_ns = loaded.timer_ns
            self.record.variables = self._without_paths(loaded.variables)
            _note_report(self.record, loaded)
        self.pause()

    def compile(self) -> None:
        """Compiles and verifies the first output."""
        if self._session is None:
            return
        self.resume()
        with self._ending("compile"):
            compiled = self._session.call(Compiled)
            self.exports = compiled.exports
            _note_report(self.record, compiled)
            self.record.verification = self._verify(self._session, "first_run")
            self._refuse_warm_caches()

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

    def finish(self) -> None:
        """Verifies the last timed output, and runs the program on a second input.

        The worker is then paused until it is profiled or closed. For generating models, the rest of
        the verification and the parts follow last, because they compile and must not disturb
        earlier measurements.
        """
        if self._session is None:
            return
        void = self.record.void_blocks
        if len(void) > len(self.record.blocks):
            reason = f"{len(void)} of {len(self._blocks)} blocks are void: {void[-1].void}"
            self._end(SessionEnded(Status.UNSTEADY, "measure", reason))
            return
        with self._ending("verify"):
            self.resume()
            self._check_times()
            self.record.final_verification = self._verify(self._session, "last_run")
            self.verify_rest()
            self.measure_accuracy()
            self.verify_second()
            self.verify_update()
            self._measure_parts()
            self._require_compiled()
        self.pause()

    def verify_rest(self) -> None:
        """Verifies the rest of a generating run that diverged from the truth at a near-tie.

        Does nothing for other runs; see `Judge.verify_rest`.
        """
        session, verdict = self._session, self.record.final_verification or self.record.verification
        if session is None or verdict is None or not verdict.divergences:
            return

        try:
            verdict = self._judge.verify_rest(self._outputs, verdict, self._run_with(session))
        except SessionEnded as ended:
            self._end(ended)
            return
        self.record.final_verification = verdict
        self._end_unless_right(verdict, "verify_rest")

    def _run_with(self, session: Session | InProcessSession) -> RunWith:
        def run_with(inputs: Sequence[Path], name: str) -> list[Path]:
            directory = self.plan.work_dir / name
            # The tokens may be the truth's, in a folder that is hidden from the worker.
            *given, tokens = inputs
            fed = shutil.copy(tokens, self.plan.work_dir / f"{name}.npy")
            paths = [*map(str, given), str(fed)]
            answer = session.call(RanWith, inputs=paths, directory=str(directory))
            self.record.phases = answer.phases or self.record.phases
            return paths_of(answer.files, directory)

        return run_with

    def measure_accuracy(self) -> None:
        """Measures accuracy on the examples of the model's task, in one process of the trial.

        Runs before the second input, so that any state it leaves behind is detected there.
        """
        session, model = self._session, self.trial.case.model
        name = model.model_impl.architecture
        if session is None or name is None or self.plan.replicate:
            return
        architecture = architectures.get(name)
        parameters = architecture.complete(model.model_parameters)
        task = trained.task_of(parameters)
        if task is None:
            return
        outputs, directory = [], self.plan.work_dir / "task"
        for index, batch in enumerate(task.batches(architecture, parameters)):
            place = directory / str(index)
            array_files.save_all(place, "input", batch)
            inputs = [str(path) for path in array_files.numbered(place, "input")]
            answer = session.call(RanOn, inputs=inputs, directory=str(place))
            _note_report(self.record, answer)
            if answer.files is None:
                return
            outputs.append(array_files.load(paths_of(answer.files, place)[0]))
            shutil.rmtree(place)
        self.record.accuracy = accuracy.judge(task, outputs)

    def verify_second(self) -> None:
        """Runs the program on a second input, then on the first again, and verifies both.

        A program that was constant-folded for its input, caches an output, keeps state or ignores
        an input is correct on the first input only. State left by the second run shows in the
        third.
        """
        session, second = self._session, self._artifacts.second
        if session is None:
            return
        if second is None:
            self.record.without_second = self._artifacts.without_second
            return
        try:
            verdict = self._verify_on(
                session, Judge(self.trial, second, second=True), "second_input"
            )
            self.record.second_verification = verdict
            if verdict is None:
                self.record.without_second = "the backend cannot replace the inputs of a program"
            elif verdict.passed:
                self.record.without_second = self._artifacts.without_second
                if self._verify_on(session, self._judge, "first_input_again"):
                    self._check_fresh_runs(session, second)
        except SessionEnded as ended:
            self._end(ended)

    def verify_update(self) -> None:
        """Verifies a single optimizer update of a model in training.

        Its peak memory is not recorded, because a step does not hold the generated values.
        """
        session, directory = self._session, self.plan.work_dir / "update"
        if session is None or not self._judge.trains:
            return
        try:
            answer = session.call(Updated, directory=str(directory))
        except SessionEnded as ended:
            if ended.status is Status.UNSUPPORTED:
                self.record.without_update_check = ended.reason
            else:
                self._end(ended)
            return
        paths = paths_of(answer.files, directory)
        found = dict(zip(answer.names, map(open_array, paths), strict=True))
        error, reason = self._judge.update_problem(found)
        self.record.update_error = error
        if reason is not None:
            self._end(SessionEnded(Status.WRONG_OUTPUT, "verify_update", reason))

    def _check_fresh_runs(self, session: Session | InProcessSession, second: Due) -> None:
        """Ends the participation if runs on new inputs take much longer than the timed ones.

        Raises:
          SessionEnded: they do, or the worker has ended.
        """
        if not self.alive or not self.record.latencies_ms:
            return
        median_ms = statistics.median(self.record.latencies_ms)
        answer = session.call(
            FreshRuns,
            inputs=[str(path) for path in second.inputs],
            enough_ms=plausibility.enough_ms(median_ms),
            restored=[str(path) for path in self._artifacts.inputs],
        )
        # Do not record peak memory: rotated copies of the inputs are not part of the program.
        self.record.without_fresh_runs = answer.without
        if plausibility.is_machine_slow(answer.runs_ms, answer.seen_ms):
            self.record.without_fresh_runs = (
                "the machine was too busy: runs on inputs that it had seen took as long"
            )
        elif problem := plausibility.fresh_run_problem(median_ms, answer.runs_ms):
            raise SessionEnded(Status.FAILED, "fresh_runs", problem)

    def _check_times(self) -> None:
        """Ends the participation if its times are implausible.

        Raises:
          SessionEnded: the times are implausible.
        """
        cpus = os.cpu_count() or 1
        problem = plausibility.clock_problem(self._timed, cpus)
        if problem is None and self.trial.device.accelerator_type == "cpu":
            cost = self._artifacts.cost
            moved = [*self._artifacts.inputs, *self._artifacts.reference]
            weight_bytes = (cost.bytes or 0) - sum(open_array(path).nbytes for path in moved)
            problem = plausibility.latency_problem(
                self.record.latencies_ms,
                flops=cost.flops,
                weight_bytes=max(weight_bytes, 0),
                element_type=self._computes_in(),
                cpus=cpus,
            )
        if problem:
            raise SessionEnded(Status.FAILED, "measure", problem)

    def _computes_in(self) -> str:
        """Returns the element type of the computation; empty if options may reduce precision."""
        if self.trial.competitor.options:
            return ""
        return DATA_TYPES.get(str(self.trial.precision), "")

    def _verify_on(
        self, session: Session | InProcessSession, judge: Judge, name: str
    ) -> Verification | None:
        """Verifies a run on an input, which stays in place; wrong output ends the participation.

        Returns:
          The verdict; None if the backend cannot replace its inputs.
        """
        directory, paths = self.plan.work_dir / name, [str(path) for path in judge.due.inputs]
        answer = session.call(RanOn, inputs=paths, directory=str(directory))
        _note_report(self.record, answer)
        if answer.files is None:
            return None
        outputs = paths_of(answer.files, directory)
        verdict = judge.verify_rest(outputs, judge.verify(outputs), self._run_with(session))
        self._end_unless_right(verdict, f"verify_{name}")
        return verdict

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
        return details.take_profile(
            self._session, directory, self.record.latencies_ms or latencies_ms
        )

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
                plausibility.TimedBlock(
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

    def _without_paths(self, variables: Mapping[str, str]) -> dict[str, str]:
        """Replaces folders that differ between processes with placeholders."""
        folders = {str(self.plan.work_dir): "{work_dir}", str(self.plan.cache_dir): "{cache_dir}"}
        if isinstance(self._session, Session):
            folders |= self._session.folders
        found = {}
        for name, value in variables.items():
            found[name] = value
            for folder, field in folders.items():
                found[name] = found[name].replace(folder, field)
        return found

    def _load_arguments(self) -> Mapping[str, Any]:
        competitor, model = self.trial.competitor, self.trial.case.model
        return {
            "implementation": competitor.backend.implementation,
            "context": {
                "compiler": competitor.compiler.name,
                "accelerator": competitor.compiler.accelerator,
                "options": list(competitor.options),
                "device": attrs.asdict(self.trial.device, value_serializer=_as_json),
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

    def _verify(self, session: Session | InProcessSession, which: str) -> Verification:
        """Verifies the outputs of the last execution; wrong output ends the participation."""
        directory = self.plan.work_dir / which
        answer = session.call(Outputs, directory=str(directory))
        _note_report(self.record, answer)
        self.record.program = answer.facts
        self.record.effective = answer.effective
        self._outputs = paths_of(answer.files, directory)
        verification = self._judge.verify(self._outputs)
        self._end_unless_right(verification, f"verify_{which}")
        return verification

    def _end_unless_right(self, verdict: Verification, phase: str) -> None:
        """Ends the participation if an output is wrong or cannot be verified.

        If the truth is in doubt, outputs are not reported as wrong.
        """
        if verdict.passed:
            return
        status, reason = Status.WRONG_OUTPUT, verdict.reason or "wrong output"
        check, remark = self._artifacts.truth_check, self._artifacts.manifest.truth_remark
        if verdict.undecided:
            status = Status.UNSUPPORTED
        elif check is not None and check.in_doubt:
            status, reason = unjudged(check, reason)
        elif remark and (verdict.relative_rmse or 1.0) < _ERROR_OF_INEXACT_TRUTHS:
            status = Status.UNSUPPORTED
            reason = f"its truth is not exact ({remark}), and it is near: {reason}"
        self._end(SessionEnded(status, phase, reason))

    def _refuse_warm_caches(self) -> None:
        """Raises `SessionEnded` if a cold compile found a cache that was not empty."""
        program = self.record.program
        if self.plan.cold and program is not None and program.cache_hits:
            raise SessionEnded(
                Status.FAILED,
                "compile",
                f"not a cold compile: of caches that were to be empty came {program.cache_hits} "
                "programs, as the stack counts; does `BackendInfo.environment` leave one out?",
            )

    def _require_compiled(self) -> None:
        """Records the fractions of compiled code; raises `SessionEnded` if there is too little."""
        program = self.record.program
        if self._session is None or program is None:
            return
        shares = self._session.call(CompiledShares).shares
        self.record.program = attrs.evolve(program, notes={**program.notes, **shares})

    def _measure_parts(self) -> None:
        """Measures prefill and decode of generating models, or the parts of training steps."""
        if self._session is None:
            return
        if self._judge.trains:
            self._measure_step_parts(self._session)
        if not self._judge.generates:
            return
        self.plan.track.note(part="generation")
        found, ended = details.take_generation_times(
            self._session,
            self.plan.work_dir / "parts",
            self.record.latencies_ms,
            self._judge.verify,
        )
        self.record.generation = found
        self.record.phases = found.phases or self.record.phases
        if ended is not None and ended.status in (Status.CRASHED, Status.TIMEOUT):
            self.close()

    def _measure_step_parts(self, session: Session | InProcessSession) -> None:
        self.plan.track.note(part="step parts")
        found, ended = details.take_step_times(session, self.record.latencies_ms)
        if isinstance(found, str):
            self.record.without_step_times = found
        else:
            self.record.step_times = found
        if ended is not None and ended.status in (Status.CRASHED, Status.TIMEOUT):
            self.close()

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


def unjudged(check: TruthCheck, reason: str) -> tuple[Status, str]:
    """Returns status and reason for an output that differs from a truth in doubt.

    Args:
      check: the truth check with the doubts.
      reason: how the output differs.
    """
    doubts = "; ".join(map(str, check.in_doubt))
    return Status.UNSUPPORTED, f"truth in doubt: {doubts}. The output differs: {reason}"


def note_end(record: ProcessRecord, ended: SessionEnded) -> None:
    """Records how a session ended early."""
    record.status, record.phase, record.reason = ended.status, ended.phase, ended.reason
    record.traceback = ended.traceback
    if ended.report is not None:
        _note_report(record, ended.report)


def _block(block: Block, iterations: int) -> Block:
    if len(block.latencies_ms) != iterations:
        reason = f"the worker reported {len(block.latencies_ms)} latencies, expected {iterations}"
        raise SessionEnded(Status.FAILED, "measure", reason)
    ratio = block.cpu_ms / block.wall_ms if block.cpu_ms is not None and block.wall_ms else None
    judged = block.conditions.contended if block.conditions else None
    return attrs.evolve(block, cpu_wall_ratio=ratio, contended=judged)


def _note_report(record: ProcessRecord, report: Report) -> None:
    record.phases = report.phases or record.phases
    peak, base = report.host_memory_peak_bytes, report.host_memory_base_bytes
    record.host_memory_peak_bytes = peak or record.host_memory_peak_bytes
    record.host_memory_base_bytes = base or record.host_memory_base_bytes


def _as_json(_: Any, __: Any, value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else value
