"""One competitor of a race: a worker that is started, warmed up, measured in blocks, and ended.

Nothing that happens to its worker raises: a participant that has failed says so by `alive`, and its
`record` holds how it ended.
"""

import statistics
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import attrs

from comparative_benchmark.harness import profiling
from comparative_benchmark.harness.in_process import InProcessSession
from comparative_benchmark.harness.sampling_rule import SamplingRule
from comparative_benchmark.harness.session import Session, SessionEnded
from comparative_benchmark.harness.settings import RunSettings
from comparative_benchmark.harness.steadiness import (
    noise_converged,
    relative_precision,
    steadiness,
)
from comparative_benchmark.harness.trace import ProcessTrack
from comparative_benchmark.harness.trial import ProcessRecord, Status, Trial
from comparative_benchmark.harness.verification import Verification, verify
from openxla.benchmark.artifacts.workload_store import WorkloadArtifacts


class Participant:
    """Takes one worker of a trial through its phases."""

    def __init__(
        self,
        trial: Trial,
        artifacts: WorkloadArtifacts,
        settings: RunSettings,
        *,
        work_dir: Path,
        cache_dir: Path,
        log_file: Path,
        cold: bool,
        track: ProcessTrack,
    ) -> None:
        self.trial = trial
        self.record = ProcessRecord(log_file=str(log_file), cold=cold)
        self.iterations_per_block = 1
        self._precision: list[float] = []
        self._artifacts = artifacts
        self._settings = settings
        self._work_dir = work_dir
        self._cache_dir = cache_dir
        self._track = track
        self._stack = ExitStack()
        self._session: Session | InProcessSession | None = None

    @property
    def alive(self) -> bool:
        """Whether it can still be measured."""
        return self._session is not None

    def start(self) -> None:
        """Starts the worker, loads, compiles, and verifies the first output."""
        try:
            session = self._settings.open_session(
                self.trial.competitor.backend,
                self.trial.competitor.environment,
                work_dir=self._work_dir,
                cache_dir=self._cache_dir,
                log_file=Path(self.record.log_file),
                track=self._track,
            )
            self._stack.push(session)
            self._session = session
            loaded = session.call("load", **self._load_arguments())
            self.record.versions = loaded["versions"]
            self.record.timer_ns = loaded["timer_ns"]
            _note_report(self.record, loaded)
            _note_report(self.record, session.call("compile"))
            self.record.verification = self._verify(session, "first_run")
        except SessionEnded as ended:
            self._end(ended)

    def warm_up(self, iterations: int) -> None:
        """Runs a fixed number of iterations."""
        if iterations and (block := self._measure(iterations, part="warm-up")):
            self.record.warmup_latencies_ms += block["latencies_ms"]

    def warm_up_until_steady(self, rule: SamplingRule) -> None:
        """Runs until the half-split test finds no trend any more, or the warm-up's budget is spent.

        Then it decides how many iterations make a block.
        """
        samples = self.record.warmup_latencies_ms
        verdict = None
        while self.alive and sum(samples) < rule.warmup_budget_ms:
            if not (block := self._measure(rule.warmup_iterations(samples), part="warm-up")):
                return
            samples += block["latencies_ms"]
            verdict = steadiness(samples[-rule.steady_window :])
            if len(samples) >= rule.steady_window and verdict.steady:
                break
        if verdict is None:
            return
        self.record.steadiness = attrs.asdict(verdict)
        if not verdict.steady:
            reason = f"not steady after {sum(samples) / 1e3:.0f} s of warm-up: {verdict.reason}"
            self._end(SessionEnded(Status.UNSTEADY, "warm_up", reason))
            return
        median_ms = statistics.median(samples[-rule.steady_window :])
        self.iterations_per_block = rule.iterations_per_block(median_ms, self.record.timer_ns or 0)

    def measure_block(self, round_index: int, iterations: int, *, refresh: bool = False) -> None:
        """Measures one block; `refresh` runs one unmeasured iteration before it."""
        if refresh:
            self._measure(1, part="refresh")
        if block := self._measure(iterations, part="round", round=round_index):
            self.record.blocks.append({"round": round_index, **block})

    def why_enough_rounds(self, rule: SamplingRule) -> str | None:
        """Returns why further rounds of this process are not worth their time; None if they are.

        Half of the goal is asked of a process: the spread between processes needs the other half.
        """
        samples = self.record.latencies_ms
        self._precision.append(relative_precision(samples))
        if self._precision[-1] <= rule.goal / 2:
            return "precision"
        return "noise" if noise_converged(self._precision) else None

    def pause(self) -> None:
        """Stops the worker, so that it can not take time from the one that is measured."""
        if isinstance(self._session, Session):
            self._session.pause()

    def resume(self) -> None:
        """Lets the worker go on."""
        if isinstance(self._session, Session):
            self._session.resume()

    def finish(self) -> None:
        """Verifies the last timed output; the worker is stopped until it is profiled or closed."""
        if self._session is None:
            return
        try:
            self.resume()
            self.record.final_verification = self._verify(self._session, "last_run")
        except SessionEnded as ended:
            self._end(ended)
        self.pause()

    def profile(self, directory: Path) -> profiling.Profile | None:
        """Profiles a worker that has finished; None if it has failed. Its record stays as it is."""
        if self._session is None:
            return None
        self.resume()
        taken = profiling.take(self._session, directory, self.record.latencies_ms)
        self.close()
        return taken

    def close(self) -> None:
        """Ends the worker if it is still there."""
        self._session = None
        self._stack.close()

    def resident_bytes(self) -> int:
        """Returns the memory that the worker holds now."""
        return self._session.resident_bytes() if isinstance(self._session, Session) else 0

    def _measure(self, iterations: int, **note: Any) -> dict[str, Any] | None:
        if self._session is None:
            return None
        self._track.note(**note)
        try:
            block: dict[str, Any] = self._session.call("measure", iterations=iterations)["block"]
        except SessionEnded as ended:
            self._end(ended)
            return None
        return block

    def _load_arguments(self) -> Mapping[str, Any]:
        competitor, model = self.trial.competitor, self.trial.case.model
        return {
            "implementation": competitor.backend.implementation,
            "context": {
                "compiler": competitor.compiler.name,
                "options": list(competitor.options),
                "device": attrs.asdict(self.trial.device, value_serializer=_plain),
                "threads": self._settings.threads,
                "work_dir": str(self._work_dir),
            },
            "module_path": model.model_impl.module_path,
            "parameters": dict(model.model_parameters),
            "inputs": [str(path) for path in self._artifacts.inputs],
        }

    def _verify(self, session: Session | InProcessSession, which: str) -> Verification:
        """Judges the outputs of the last execution; a wrong one ends the participation."""
        directory = self._work_dir / which
        answer = session.call("outputs", directory=str(directory))
        _note_report(self.record, answer)
        self.record.facts = answer["facts"]
        verification = verify(
            [directory / file["file"] for file in answer["files"]],
            self._artifacts.truth,
            self._artifacts.reference,
            self.trial.case.verify_parameters,
        )
        if not verification.passed:
            reason = verification.reason or "wrong output"
            self._end(SessionEnded(Status.WRONG_OUTPUT, f"verify_{which}", reason))
        return verification

    def _end(self, ended: SessionEnded) -> None:
        note_end(self.record, ended)
        self.close()


def note_end(record: ProcessRecord, ended: SessionEnded) -> None:
    """Writes down how a session ended early."""
    record.status, record.phase, record.reason = ended.status, ended.phase, ended.reason
    record.traceback = ended.report.get("traceback")
    _note_report(record, ended.report)


def _note_report(record: ProcessRecord, report: Mapping[str, Any]) -> None:
    record.phases = report.get("phases", record.phases)
    peak = report.get("host_memory_peak_bytes")
    record.host_memory_peak_bytes = peak or record.host_memory_peak_bytes


def _plain(_: Any, __: Any, value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else value
