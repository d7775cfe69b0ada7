"""Checks and measurements of a worker apart from its timed rounds.

Its outputs are verified before and after the rounds, its times are compared with the parent's
clock, and last come the parts of its iterations and a profile.
"""

import math
import os
import shutil
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path

import attrs

from comparative_benchmark.analysis.verification import accuracy, plausibility
from comparative_benchmark.analysis.verification.verification import Verification, open_array
from comparative_benchmark.engine.judging import Judge
from comparative_benchmark.engine.messages import (
    CompiledShares,
    Failure,
    FreshRuns,
    Generation,
    Outputs,
    Profiled,
    RanOn,
    RanWith,
    Report,
    StepParts,
    Updated,
    paths_of,
)
from comparative_benchmark.engine.session import Callee, InProcessSession, Session, SessionEnded
from comparative_benchmark.engine.settings import ProcessPlan
from comparative_benchmark.engine.trial import Trial
from comparative_benchmark.results.outcome import GenerationTimes, ProcessRecord
from comparative_benchmark.results.record import ProfileRecord, Status, StepTimes
from openxla.benchmark.artifacts import array_files
from openxla.benchmark.artifacts.workload_store import Due, TruthCheck, WorkloadArtifacts
from openxla.benchmark.models import architectures, trained
from openxla.benchmark.models.architectures.base import DATA_TYPES

# Phase of a result whose first output is wrong.
FIRST_VERIFICATION = "verify_first_run"

# Possible relative error of a truth whose float64 run computes parts in float32.
_ERROR_OF_INEXACT_TRUTHS = 1e-3

# Target times in each process of a trial, and limits of the number of iterations.
_PROFILE_MS, _MIN_PROFILED, _MAX_PROFILED = 1000.0, 3, 50
_PARTS_MS, _MIN_REPETITIONS, _MAX_REPETITIONS = 400.0, 5, 50


@attrs.define
class OutputChecks:
    """Checks of one worker's outputs and times, in the order of the methods.

    Each method raises `SessionEnded` if the check fails or the worker ends. Verdicts are stored in
    the record before that.

    Args:
      trial: the trial.
      artifacts: inputs and truths.
      plan: the process.
      record: receives verdicts, and what the worker reports.
      session: session of the worker.

    Attributes:
      outputs: files of the outputs that were verified last.
    """

    _trial: Trial
    _artifacts: WorkloadArtifacts
    _plan: ProcessPlan
    _record: ProcessRecord
    _session: Session | InProcessSession
    outputs: Sequence[Path] = attrs.field(default=(), init=False)
    _judge: Judge = attrs.field(init=False)
    _run_ms: float | None = attrs.field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self._judge = Judge(self._trial, self._artifacts.first)

    def verify_first_run(self) -> None:
        """Verifies the first execution, and that a cold compile found empty caches."""
        self._record.verification = self._last_outputs("first_run")
        self._require(self._record.verification, FIRST_VERIFICATION)
        program = self._record.program
        if self._record.cold and program is not None and program.cache_hits:
            raise SessionEnded(
                Status.FAILED,
                "compile",
                f"not a cold compile: expected no cache hits, got {program.cache_hits}; check that "
                "`BackendInfo.environment` redirects every cache",
            )

    def check_times(self, timed: Sequence[plausibility.TimedBlock]) -> None:
        """Compares the reported times with the parent's clock and with the machine's peak rates."""
        cpus = os.cpu_count() or 1
        problem = plausibility.clock_problem(timed, cpus)
        if problem is None and self._trial.device.accelerator_type == "cpu":
            cost = self._artifacts.cost
            moved = [*self._artifacts.inputs, *self._artifacts.reference]
            weight_bytes = (cost.bytes or 0) - sum(open_array(path).nbytes for path in moved)
            # Options may reduce the precision of the computation.
            precision = "" if self._trial.competitor.options else str(self._trial.precision)
            problem = plausibility.latency_problem(
                self._record.latencies_ms,
                flops=cost.flops,
                weight_bytes=max(weight_bytes, 0),
                element_type=DATA_TYPES.get(precision, ""),
                cpus=cpus,
            )
        if problem:
            raise SessionEnded(Status.FAILED, "measure", problem)

    def verify_last_run(self) -> None:
        """Verifies the last timed execution."""
        self._record.final_verification = self._last_outputs("last_run")
        self._require(self._record.final_verification, "verify_last_run")

    def verify_rest(self) -> None:
        """Verifies the rest of a generating run that diverged from the truth at a near-tie.

        Does nothing for other runs; see `Judge.verify_rest`.
        """
        verdict = self._record.final_verification or self._record.verification
        if verdict is not None and verdict.divergences:
            verdict = self._judge.verify_rest(self.outputs, verdict, self._run_with)
            self._record.final_verification = verdict
            self._require(verdict, "verify_rest")

    def measure_accuracy(self) -> None:
        """Measures accuracy on the examples of the model's task, in one process of the trial.

        Runs before the second input, so that any state it leaves behind is detected there.
        """
        model = self._trial.case.model
        name = model.model_impl.architecture
        if name is None or self._plan.replicate:
            return
        architecture = architectures.get(name)
        parameters = architecture.complete(model.model_parameters)
        task = trained.task_of(parameters)
        if task is None:
            return
        logits = []
        for index, batch in enumerate(task.batches(architecture, parameters)):
            place = self._plan.work_dir / "task" / str(index)
            array_files.save_all(place, "input", batch)
            outputs = self._outputs_on(array_files.numbered(place, "input"), place)
            if outputs is None:
                return
            logits.append(array_files.load(outputs[0]))
            shutil.rmtree(place)
        self._record.accuracy = accuracy.judge(task, logits)

    def verify_second(self) -> None:
        """Runs the program on a second input, then on the first again, and verifies both.

        A program that was constant-folded for its input, caches an output, keeps state or ignores
        an input is correct on the first input only. State left by the second run shows in the
        third.
        """
        second = self._artifacts.second
        self._record.without_second = self._artifacts.without_second
        if second is None:
            return
        verdict = self._verify_on(Judge(self._trial, second, second=True), "second_input")
        self._record.second_verification = verdict
        second_ms = self._run_ms or 0.0
        if verdict is None:
            # It might return a stored output.
            self._record.without_second = "the backend cannot replace a program's inputs"
            self._record.not_ranked = self._record.without_second
            return
        self._require(verdict, "verify_second_input")
        again = self._verify_on(self._judge, "first_input_again")
        if again is not None:
            self._require(again, "verify_first_input_again")
            self._compare_fresh_runs(second, second_ms)

    def verify_update(self) -> None:
        """Verifies a single optimizer update of a model in training.

        Its peak memory is not recorded, because a step does not hold the generated values.
        """
        if not self._judge.trains:
            return
        directory = self._plan.work_dir / "update"
        try:
            answer = self._session.call(Updated, directory=str(directory))
        except SessionEnded as ended:
            if ended.status is not Status.UNSUPPORTED:
                raise
            self._record.without_update_check = ended.reason
            return
        paths = paths_of(answer.files, directory)
        weights = dict(zip(answer.names, map(open_array, paths), strict=True))
        self._record.update_error, reason = self._judge.update_problem(weights)
        if reason is not None:
            raise SessionEnded(Status.WRONG_OUTPUT, "verify_update", reason)

    def measure_parts(self) -> bool:
        """Measures prefill and decode of generating models, or the parts of training steps.

        Compilation may be needed for them, so they come after all other measurements. A failure
        loses only these times.

        Returns:
          Whether the worker is still alive.
        """
        ended = None
        if self._judge.trains:
            self._plan.track.note(part="step parts")
            times, ended = take_step_times(self._session, self._record.latencies_ms)
            if isinstance(times, str):
                self._record.without_step_times = times
            else:
                self._record.step_times = times
        elif self._judge.generates:
            self._plan.track.note(part="generation")
            generation, ended = take_generation_times(
                self._session,
                self._plan.work_dir / "parts",
                self._record.latencies_ms,
                self._judge.verify,
            )
            self._record.generation = generation
            self._record.phases = generation.phases or self._record.phases
        # A worker that reported its own failure lives; the parent has killed all others.
        return ended is None or isinstance(ended.report, Failure)

    def require_compiled(self) -> None:
        """Records the fractions of compiled code; fails if there is too little."""
        if (program := self._record.program) is not None:
            shares = self._session.call(CompiledShares).shares
            self._record.program = attrs.evolve(program, notes={**program.notes, **shares})

    def _compare_fresh_runs(self, second: Due, second_ms: float) -> None:
        """Checks that runs on new inputs do not take much longer than the timed ones.

        If the model rejects other inputs, only the run on the second input was on new ones.
        """
        if not self._record.latencies_ms:
            return
        median_ms = statistics.median(self._record.latencies_ms)
        answer = self._session.call(
            FreshRuns,
            inputs=[str(path) for path in second.inputs],
            enough_ms=plausibility.enough_ms(median_ms),
            restored=[str(path) for path in self._artifacts.inputs],
        )
        # Do not record peak memory: rotated copies of the inputs are not part of the program.
        self._record.without_fresh_runs = answer.without
        problem = plausibility.fresh_run_problem(median_ms, answer.runs_ms)
        if problem and plausibility.is_machine_slow(answer.runs_ms, answer.seen_ms):
            self._record.without_fresh_runs = (
                "the machine was too busy: runs on repeated inputs took as long as on new ones"
            )
        elif problem:
            raise SessionEnded(Status.FAILED, "fresh_runs", problem)
        elif (
            answer.without
            and plausibility.fresh_run_problem(median_ms, [second_ms])
            and not plausibility.is_machine_slow([second_ms], answer.seen_ms)
        ):
            self._record.not_ranked = (
                f"its timed iterations took {median_ms:.3g} ms and the run on the second input "
                f"{second_ms:.3g} ms; no further inputs were timed: {answer.without}"
            )

    def _last_outputs(self, name: str) -> Verification:
        """Verifies the outputs of the last execution."""
        directory = self._plan.work_dir / name
        answer = self._session.call(Outputs, directory=str(directory))
        note_report(self._record, answer)
        self._record.program = answer.facts
        self._record.effective = answer.effective
        self.outputs = paths_of(answer.files, directory)
        return self._judge.verify(self.outputs)

    def _verify_on(self, judge: Judge, name: str) -> Verification | None:
        """Verifies a run on another input; None if the backend cannot replace its inputs."""
        outputs = self._outputs_on(judge.due.inputs, self._plan.work_dir / name)
        if outputs is None:
            return None
        return judge.verify_rest(outputs, judge.verify(outputs), self._run_with)

    def _outputs_on(self, inputs: Sequence[Path], directory: Path) -> list[Path] | None:
        """Runs on inputs, which stay in place; None if the backend cannot replace its inputs."""
        paths = [str(path) for path in inputs]
        answer = self._session.call(RanOn, inputs=paths, directory=str(directory))
        note_report(self._record, answer)
        self._run_ms = answer.run_ms
        return None if answer.files is None else paths_of(answer.files, directory)

    def _run_with(self, inputs: Sequence[Path], name: str) -> list[Path]:
        directory = self._plan.work_dir / name
        # The tokens may be the truth's, in a folder that is hidden from the worker.
        *given, tokens = inputs
        fed = shutil.copy(tokens, self._plan.work_dir / f"{name}.npy")
        paths = [*map(str, given), str(fed)]
        answer = self._session.call(RanWith, inputs=paths, directory=str(directory))
        self._record.phases = answer.phases or self._record.phases
        return paths_of(answer.files, directory)

    def _require(self, verdict: Verification, phase: str) -> None:
        """Raises `SessionEnded` if an output is wrong or cannot be verified.

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
            reason = f"the truth is inexact ({remark}), so a small error is inconclusive: {reason}"
        raise SessionEnded(status, phase, reason)


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
        note_report(record, ended.report)


def note_report(record: ProcessRecord, report: Report) -> None:
    """Records the phases and the memory that a worker reported."""
    record.phases = report.phases or record.phases
    peak, base = report.host_memory_peak_bytes, report.host_memory_base_bytes
    record.host_memory_peak_bytes = peak or record.host_memory_peak_bytes
    record.host_memory_base_bytes = base or record.host_memory_base_bytes


def profiled_iterations(latencies_ms: Sequence[float]) -> int:
    """Returns the number of iterations to profile: about one second's worth, from 3 to 50.

    Fewer show no pattern; more make traces that viewers open slowly. The overhead of the profiler
    is unknown and adds to the time.
    """
    median_ms = statistics.median(latencies_ms) if latencies_ms else _PROFILE_MS
    fitting = _MAX_PROFILED if median_ms <= 0 else int(_PROFILE_MS / median_ms)
    return min(max(fitting, _MIN_PROFILED), _MAX_PROFILED)


def take_profile(session: Callee, directory: Path, latencies_ms: Sequence[float]) -> ProfileRecord:
    """Profiles a worker after its last measurement.

    Args:
      session: session of the worker; it may have ended afterwards, because profilers can crash or
        hang.
      directory: absolute path for the files; created if missing.
      latencies_ms: measured latencies, which determine the number of profiled iterations.
    """
    iterations = profiled_iterations(latencies_ms)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        answer = session.call(Profiled, directory=str(directory), iterations=iterations)
    except (SessionEnded, OSError) as error:
        return ProfileRecord(directory=str(directory), iterations=iterations, error=str(error))
    return ProfileRecord(directory=str(directory), files=answer.files, iterations=iterations)


def generation_iterations(latencies_ms: Sequence[float]) -> int:
    """Returns how often to prefill and to decode all tokens: about 0.4 s, 5 to 50 times.

    Prefill and all decode steps each take no longer than the measured whole generation.
    """
    median_ms = statistics.median(latencies_ms) if latencies_ms else _PARTS_MS
    fitting = math.ceil(_PARTS_MS / max(median_ms, 1e-3))
    return min(max(fitting, _MIN_REPETITIONS), _MAX_REPETITIONS)


def take_generation_times(
    session: Callee,
    directory: Path,
    latencies_ms: Sequence[float],
    verify: Callable[[Sequence[Path]], Verification],
) -> tuple[GenerationTimes, SessionEnded | None]:
    """Measures prefill and decode separately in a worker and verifies the generated tokens.

    A failure only loses these times; earlier measurements remain valid.

    Args:
      session: session of the worker.
      directory: folder for tokens and logits.
      latencies_ms: latencies of the whole generation, which determine the number of repetitions.
      verify: verifies the token and logit files.

    Returns:
      The times or why they are missing, and the end of the session if it failed.
    """
    try:
        answer = session.call(
            Generation, directory=str(directory), iterations=generation_iterations(latencies_ms)
        )
    except SessionEnded as ended:
        return GenerationTimes(reason=_reason(ended)), ended
    verdict = verify(paths_of(answer.files, directory))
    if not verdict.passed:
        reason = f"wrong output if prefill and decode are called separately: {verdict.reason}"
        return GenerationTimes(reason=reason, verification=verdict), None
    times = GenerationTimes(
        prefill_ms=answer.times.prefill_ms,
        decode_ms=answer.times.decode_ms,
        verification=verdict,
        phases=answer.phases or {},
    )
    return times, None


def _reason(ended: SessionEnded) -> str:
    if ended.status is Status.UNSUPPORTED:  # not a failure
        return ended.explanation
    return f"{ended.status.value}: {ended.reason}"


def take_step_times(
    session: Callee, latencies_ms: Sequence[float]
) -> tuple[StepTimes | str, SessionEnded | None]:
    """Measures the parts of a training step separately in a worker.

    A failure only loses these times; earlier measurements remain valid.

    Args:
      session: session of the worker.
      latencies_ms: latencies of whole steps, which determine the number of repetitions.

    Returns:
      The times or why they are missing, and the end of the session if it failed.
    """
    try:
        answer = session.call(StepParts, iterations=generation_iterations(latencies_ms))
        return answer.times, None
    except SessionEnded as ended:
        return _reason(ended), ended
