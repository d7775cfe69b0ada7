"""A run: plan the trials, prepare their artifacts, run them one by one, keep each result."""

import re
from collections.abc import Sequence
from typing import Protocol

import attrs

from comparative_benchmark.harness.host import describe, git_revision, python_environment
from comparative_benchmark.harness.preparation import Preparation
from comparative_benchmark.harness.session import SessionEnded
from comparative_benchmark.harness.settings import RunSettings
from comparative_benchmark.harness.trial import Competitor, Status, Trial, TrialOutcome
from comparative_benchmark.harness.trial_runner import note_end, run_trial
from comparative_benchmark.results.records import Record, key_of, to_record
from comparative_benchmark.results.store import ResultsFile
from openxla.benchmark.def_types import BenchmarkCase, DeviceSpec
from openxla.benchmark.workloads import workload_of


class Observer(Protocol):
    """Is told what happens while it happens."""

    def preparing(self, what: str) -> None:
        """Artifacts are being made."""

    def trial_started(self, trial: Trial, position: int, total: int) -> None:
        """A trial begins; positions count from 1."""

    def trial_finished(self, record: Record, position: int, total: int) -> None:
        """A trial has ended, and its result is on disk."""


@attrs.frozen(kw_only=True)
class Plan:
    """Trials in the order in which they run, and the competitors that no case fits."""

    trials: list[Trial]
    idle: list[Competitor]


def plan(
    cases: Sequence[BenchmarkCase], competitors: Sequence[Competitor], device: DeviceSpec
) -> Plan:
    """Pairs each case with each competitor that takes its framework, workload by workload.

    Raises:
      DefinitionError: a case is malformed.
    """
    workloads = {case.name: workload_of(case) for case in cases}
    trials = [
        Trial(case=case, workload=workloads[case.name], competitor=competitor, device=device)
        for case in cases
        for competitor in competitors
        if case.model.model_impl.framework_type in competitor.backend.modules
    ]
    order = list(dict.fromkeys(trial.workload.digest for trial in trials))
    trials.sort(key=lambda trial: order.index(trial.workload.digest))
    used = {str(trial.competitor) for trial in trials}
    return Plan(trials=trials, idle=[c for c in competitors if str(c) not in used])


def execute(
    trials: Sequence[Trial],
    settings: RunSettings,
    results: ResultsFile,
    observer: Observer,
    *,
    command: Sequence[str],
    resume: bool = False,
) -> list[Record]:
    """Runs trials and returns their records; each is on disk before the next trial starts.

    Args:
      trials: what to run, in order.
      settings: of the run.
      results: where results go.
      observer: is told of progress.
      command: what the user typed, kept with the results.
      resume: leave out trials that have an `ok` result in the file; their records are returned.

    Raises:
      ResultsFileError: the file can not be written.
    """
    done = {key_of(r): r for r in results.records() if r["status"] == "ok"} if resume else {}
    run_id = results.start_run(
        execution_environment={
            "python_environment": python_environment(),
            "host": describe(threads=settings.threads),
            "git_revision": git_revision(),
        },
        command=command,
    )
    pending = [trial for trial in trials if trial.key not in done]
    preparation = Preparation(settings, observer.preparing)
    preparation.run([trial for trial in pending if not _missing(trial)])
    records = []
    for position, trial in enumerate(trials, start=1):
        if trial.key in done:
            records.append(done[trial.key])
            continue
        observer.trial_started(trial, position, len(trials))
        outcome = _outcome(trial, preparation, settings, run_id)
        record = to_record(trial, outcome, run_id=run_id)
        results.append(record)
        records.append(record)
        observer.trial_finished(record, position, len(trials))
    return records


def _outcome(
    trial: Trial, preparation: Preparation, settings: RunSettings, run_id: str
) -> TrialOutcome:
    artifacts = preparation.artifacts.get(trial.workload.digest)
    if missing := _missing(trial):
        return _ended(missing)
    if artifacts is None:
        return _ended(preparation.failures[trial.case.name])
    name = re.sub(r"[^\w.+-]+", "-", "-".join((trial.case.model.name, *trial.key[1:])))
    return run_trial(trial, artifacts, settings, settings.log_dir / run_id / f"{name}.log")


def _missing(trial: Trial) -> SessionEnded | None:
    """Says what is not installed that a trial needs."""
    backend = trial.competitor.backend
    missing = backend.missing_modules(trial.case.model.model_impl.framework_type)
    if not missing:
        return None
    reason = f"{', '.join(missing)} not installed; run {backend.install}"
    return SessionEnded(Status.UNSUPPORTED, "import", reason)


def _ended(ended: SessionEnded) -> TrialOutcome:
    outcome = TrialOutcome()
    note_end(outcome, ended)
    return outcome
