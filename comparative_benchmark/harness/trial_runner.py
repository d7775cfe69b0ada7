"""Takes one trial through its phases: load, compile, verify, warm up, measure, verify again."""

import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from comparative_benchmark.harness.in_process import InProcessSession
from comparative_benchmark.harness.session import Session, SessionEnded
from comparative_benchmark.harness.settings import RunSettings
from comparative_benchmark.harness.trial import Status, Trial, TrialOutcome
from comparative_benchmark.harness.verification import Verification, verify
from openxla.benchmark.artifacts.workload_store import WorkloadArtifacts


def run_trial(
    trial: Trial, artifacts: WorkloadArtifacts, settings: RunSettings, log_file: Path
) -> TrialOutcome:
    """Runs a trial in a fresh worker; never raises for what the worker does."""
    started = time.monotonic()
    outcome = TrialOutcome(log_file=str(log_file), artifact_digests=artifacts.digests)
    with tempfile.TemporaryDirectory(prefix="cbs-trial-", ignore_cleanup_errors=True) as work_dir:
        try:
            backend = trial.competitor.backend
            with settings.open_session(
                backend, work_dir=Path(work_dir), log_file=log_file
            ) as session:
                _run(session, trial, artifacts, settings, Path(work_dir), outcome)
        except SessionEnded as ended:
            note_end(outcome, ended)
    outcome.wall_s = time.monotonic() - started
    return outcome


def note_end(outcome: TrialOutcome, ended: SessionEnded) -> None:
    """Writes down how a session ended early."""
    outcome.status, outcome.phase, outcome.reason = ended.status, ended.phase, ended.reason
    outcome.traceback = ended.report.get("traceback")
    _note_report(outcome, ended.report)


def _run(
    session: Session | InProcessSession,
    trial: Trial,
    artifacts: WorkloadArtifacts,
    settings: RunSettings,
    work_dir: Path,
    outcome: TrialOutcome,
) -> None:
    competitor, model = trial.competitor, trial.case.model
    loaded = session.call(
        "load",
        implementation=competitor.backend.implementation,
        context={
            "compiler": competitor.compiler.name,
            "options": list(competitor.options),
            "device": attrs.asdict(trial.device, value_serializer=_plain),
            "threads": settings.threads,
            "work_dir": str(work_dir),
        },
        module_path=model.model_impl.module_path,
        parameters=dict(model.model_parameters),
        inputs=[str(path) for path in artifacts.inputs],
    )
    outcome.versions = loaded["versions"]
    _note_report(outcome, loaded)
    _note_report(outcome, session.call("compile"))
    outcome.verification = _verify(session, trial, artifacts, work_dir / "first_run", outcome)
    if not outcome.verification.passed:
        return
    if settings.warmup_iterations:
        outcome.warmup = session.call("measure", iterations=settings.warmup_iterations)["block"]
    outcome.block = session.call("measure", iterations=settings.iterations)["block"]
    outcome.final_verification = _verify(session, trial, artifacts, work_dir / "last_run", outcome)


def _verify(
    session: Session | InProcessSession,
    trial: Trial,
    artifacts: WorkloadArtifacts,
    directory: Path,
    outcome: TrialOutcome,
) -> Verification:
    answer = session.call("outputs", directory=str(directory))
    _note_report(outcome, answer)
    outcome.facts = answer["facts"]
    verification = verify(
        [directory / file["file"] for file in answer["files"]],
        artifacts.truth,
        artifacts.reference,
        trial.case.verify_parameters,
    )
    if not verification.passed:
        outcome.status, outcome.phase = Status.WRONG_OUTPUT, f"verify_{directory.name}"
        outcome.reason = verification.reason
    return verification


def _note_report(outcome: TrialOutcome, report: Mapping[str, Any]) -> None:
    outcome.phases = report.get("phases", outcome.phases)
    peak = report.get("host_memory_peak_bytes")
    outcome.host_memory_peak_bytes = peak or outcome.host_memory_peak_bytes


def _plain(_: Any, __: Any, value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else value
