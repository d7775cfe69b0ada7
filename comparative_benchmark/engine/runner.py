"""A run: plan the trials, prepare their artifacts, run them and store each result."""

import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol, Self

import attrs

from comparative_benchmark.analysis.machine.host import describe, git_revision, python_environment
from comparative_benchmark.analysis.stats.planning import CompileOnly, FixedCounts, SamplingRule
from comparative_benchmark.engine import resume_command
from comparative_benchmark.engine.checks import note_end
from comparative_benchmark.engine.participant import OpenSession, own_session
from comparative_benchmark.engine.preparation import Preparation
from comparative_benchmark.engine.race import Race, facts_of
from comparative_benchmark.engine.recording import to_result
from comparative_benchmark.engine.resuming import EarlierRuns
from comparative_benchmark.engine.session import SessionEnded
from comparative_benchmark.engine.session_pool import SharedWorkers
from comparative_benchmark.engine.settings import RunSettings
from comparative_benchmark.engine.trial import Competitor, Trial
from comparative_benchmark.results import journal
from comparative_benchmark.results.comparing.compare import lacks_processes
from comparative_benchmark.results.comparing.noise_floor import load_noise_floor
from comparative_benchmark.results.outcome import ProcessRecord, TrialOutcome
from comparative_benchmark.results.record import ExecutionEnvironment, Result, ResultKey, Status
from comparative_benchmark.results.results_file import ResultsFile, converted
from openxla.benchmark.comparative_suite.operator_cases import why_not_written
from openxla.benchmark.def_types import BenchmarkCase, DeviceSpec
from openxla.benchmark.testdata import INPUT_DATA_MODEL_DEFAULT
from openxla.benchmark.workloads import training_of, trains, workload_of

# Share of the budget for inputs and truth; the rest is left for measuring.
_PREPARING = 0.5
# Long runs report the remaining time after these fractions of their trials.
_REPORTED_AT, _LONG_RUN = (0.1, 0.5), 20


@attrs.define
class RunBudget:
    """Time budget of a run, from its start, including the truth.

    A workload is started only if it would finish in time at the pace so far. If it takes longer, it
    gets no more processes; `--resume` adds the missing ones.

    Attributes:
      limit_s: the budget; None for no limit.
      fewest: minimum number of processes per trial.
      shares_workers: whether workers, with their imports, are shared by workloads.
      clock: returns the time in seconds.
    """

    limit_s: float | None
    fewest: int = 1
    shares_workers: bool = False
    clock: Callable[[], float] = time.monotonic
    _started: float = attrs.field(init=False)
    _wall_s: float = attrs.field(default=0.0, init=False)
    _processes: int = attrs.field(default=0, init=False)
    _trials: int = attrs.field(default=0, init=False)
    _reports: int = attrs.field(default=0, init=False)

    @classmethod
    def of(cls, settings: RunSettings) -> Self:
        """Returns the budget of a run that starts now."""
        return cls(settings.budget_s, settings.sampling.min_processes, settings.share_workers)

    @_started.default
    def _now(self) -> float:
        return self.clock()

    @property
    def left_s(self) -> float:
        """Remaining seconds; infinite without a limit."""
        if self.limit_s is None:
            return float("inf")
        return max(0.0, self.limit_s - (self.clock() - self._started))

    def may_prepare(self) -> bool:
        """Returns whether there is time to prepare one more workload."""
        return self.limit_s is None or self.left_s > (1 - _PREPARING) * self.limit_s

    def may_start(self, trials: int) -> bool:
        """Returns whether there is time for a workload with this number of trials."""
        needed_s = trials * self.fewest * self._wall_s / self._processes if self._processes else 0.0
        return self.left_s > needed_s

    def rationed(self, settings: RunSettings, trials: int) -> RunSettings:
        """Returns settings with an even share of the budget per trial and the end of the budget."""
        rule = settings.sampling
        if self.limit_s is None or not isinstance(rule, SamplingRule):
            return settings
        share_s = min(rule.trial_budget_s, self.left_s / max(trials, 1))
        rule = attrs.evolve(rule, trial_budget_s=share_s)
        return attrs.evolve(settings, sampling=rule, until=self.clock() + self.left_s)

    def measured(self, outcomes: Iterable[TrialOutcome]) -> None:
        """Updates the pace from a finished workload; trials that took no time are ignored."""
        for outcome in outcomes:
            if outcome.wall_s:
                imports = (process.phases.get("import") for process in outcome.processes)
                once_s = sum(phase.ms / 1e3 for phase in imports if phase) * self.shares_workers
                self._wall_s += max(0.0, outcome.wall_s - once_s)
                self._processes += len(outcome.processes)
                self._trials += 1

    def outlook(self, left: int) -> str | None:
        """Returns an estimate of the remaining time, a few times in a long run; else None."""
        total = self._trials + left
        if total < _LONG_RUN or not left or self._reports == len(_REPORTED_AT):
            return None
        if self._trials < _REPORTED_AT[self._reports] * total:
            return None
        self._reports = sum(self._trials >= part * total for part in _REPORTED_AT)
        minutes = self._wall_s / self._trials * left / 60
        return f"{self._trials} of {total} trials done, about {minutes:.0f} min left"


class Observer(Protocol):
    """Receives progress of a run."""

    def preparing(self, what: str) -> None:
        """Artifacts are being prepared."""

    def say(self, message: str) -> None:
        """Reports a message to the user."""

    def race_started(
        self, trials: Sequence[Trial], position: int, total: int, processes: int
    ) -> None:
        """The trials of a workload start, each with this number of processes or more.

        `position` counts the first trial from 1.
        """

    def process_finished(self, entry: journal.Entry) -> None:
        """A process of a trial has ended, and is on disk; nothing is being measured."""

    def trial_finished(self, result: Result, position: int, total: int) -> None:
        """A trial has ended, and its result is on disk."""


@attrs.frozen(kw_only=True)
class Plan:
    """Trials in execution order, and competitors that match no case."""

    trials: list[Trial]
    idle: list[Competitor]


def plan(
    cases: Sequence[BenchmarkCase], competitors: Sequence[Competitor], device: DeviceSpec
) -> Plan:
    """Pairs each case with each competitor that supports its framework, workload by workload.

    Raises:
      DefinitionError: a case is malformed.
    """
    workloads = {case.name: workload_of(case) for case in cases}
    trials = [
        Trial(
            case=case,
            workload=workloads[case.name],
            competitor=competitor,
            device=device,
            refused=_refusal(case, competitor),
        )
        for case in cases
        for competitor in competitors
        if competitor.backend.takes(case.model)
    ]
    order = list(dict.fromkeys(trial.workload.digest for trial in trials))
    trials.sort(key=lambda trial: order.index(trial.workload.digest))
    used = {str(trial.competitor) for trial in trials}
    return Plan(trials=trials, idle=[c for c in competitors if str(c) not in used])


def _refusal(case: BenchmarkCase, competitor: Competitor) -> str | None:
    if unwritten := why_not_written(case.model):
        return unwritten
    if training_of(case):
        return competitor.why_it_takes_no_training_step
    return competitor.why_it_cannot_train if trains(case) else None


def execute(
    trials: Sequence[Trial],
    settings: RunSettings,
    results: ResultsFile,
    observer: Observer,
    *,
    command: Sequence[str],
    resume: bool = False,
) -> list[Result]:
    """Runs trials and returns their results; trials that exceed the budget are left out.

    Each process is journaled when it ends, and the results of a workload are stored before the next
    workload starts.

    Args:
      trials: trials to run, in order.
      settings: settings of the run.
      results: the results file.
      observer: receives progress.
      command: the user's command line, stored with the results.
      resume: return stored `ok` results with the same handling of outputs instead of repeating
        their trials. Continue from the processes of interrupted runs with the same settings, and
        add processes to undecided races if the settings require more.

    Raises:
      ResultsFileError: the results file or the journal cannot be written.
    """
    budget = RunBudget.of(settings)
    with ExitStack() as stack:
        if resume:
            stack.enter_context(results.resumed_alone(observer.say))
        earlier = EarlierRuns.of(trials, settings, results, observer.say, resume=resume)
        settings, rule = earlier.settings, earlier.settings.sampling
        environment = execution_environment(trials, settings)
        run_id = results.start_run(execution_environment=environment, command=command)
        now = journal.Settings.of(run_id, settings.device.name, rule, environment, settings.outputs)
        joined = earlier.joining(now)
        now = attrs.evolve(now, joined=tuple(run.settings.run_id for run in joined))
        _report_noise_floor(settings, environment, observer)
        entries = stack.enter_context(journal.Journal(results.path, now, say=observer.say))
        shared = None
        # A run in this process has no worker to share.
        if settings.share_workers and not (settings.in_process or isinstance(rule, CompileOnly)):
            raced = isinstance(rule, SamplingRule)
            shared = stack.enter_context(SharedWorkers(settings.log_dir / run_id, raced=raced))
        run = Run(
            trials=trials,
            settings=settings,
            id=run_id,
            results=results,
            observer=observer,
            budget=budget,
            earlier=earlier,
            joined=joined,
            journal=entries,
            shared=shared,
            preparation=Preparation(settings, observer.preparing),
            finished=dict(earlier.done),
        )
        finished = run.execute()
    if left_out := len(trials) - len(finished):
        observer.say(
            f"--budget ran out: {left_out} of {len(trials)} trials did not run; to run them: "
            f"{resume_command(command, results.path)}"
        )
    return finished


@attrs.define(kw_only=True)
class Run:
    """A run in progress."""

    _trials: Sequence[Trial]
    _settings: RunSettings
    _id: str
    _results: ResultsFile
    _observer: Observer
    _budget: RunBudget
    _earlier: EarlierRuns
    _joined: Sequence[journal.Interrupted]
    _journal: journal.Journal
    _shared: SharedWorkers | None
    _preparation: Preparation
    _finished: dict[ResultKey, Result]
    # Number of trials with results, and of those that have not been started.
    _position: int = attrs.field(default=0, init=False)
    _left: int = attrs.field(default=0, init=False)

    def execute(self) -> list[Result]:
        """Runs all trials that the budget allows; returns old and new results in their order."""
        self.prepare()
        unchecked = _unchecked(self._preparation)
        for group in _workload_groups(self._trials, self._settings, unchecked):
            self.race(group)
        return [self._finished[t.key] for t in self._trials if t.key in self._finished]

    def prepare(self) -> None:
        """Prepares inputs and truths of the trials that can run, as the budget allows."""
        able = self._able(trial for trial in self._trials if trial.key not in self._finished)
        self._left = len(able)
        self._preparation.run(able, self._budget.may_prepare)

    def race(self, group: Sequence[Trial]) -> None:
        """Measures the trials of a group that have no result yet, if the budget allows."""
        pending = [trial for trial in group if trial.key not in self._finished]
        self._position += len(group) - len(pending)
        able = self._able(pending)
        prepared = all(map(self._preparation.has_tried, able))
        if not pending or (able and not (prepared and self._budget.may_start(len(able)))):
            return
        self._observer.race_started(
            pending, self._position + 1, len(self._trials), self._settings.sampling.min_processes
        )
        settings = self._budget.rationed(self._settings, self._left)
        self._left -= len(able)
        outcomes = self._outcomes(pending, settings)
        self._budget.measured(outcomes[trial.key] for trial in able)
        self.keep(pending, outcomes)
        if outlook := self._budget.outlook(self._left):
            self._observer.say(outlook)

    def keep(self, trials: Sequence[Trial], outcomes: Mapping[ResultKey, TrialOutcome]) -> None:
        """Stores the results of a group, and then removes its processes from the journals.

        Processes of an undecided race, or of one that the budget ended, are set aside, so that
        later runs can add to them.
        """
        outputs = self._settings.outputs
        ended = [to_result(t, outcomes[t.key], run_id=self._id, outputs=outputs) for t in trials]
        self._results.append(*ended)
        rule = self._settings.sampling
        counts = [len(r.measured.processes or ()) for r in ended if r.status is Status.OK]
        if isinstance(rule, SamplingRule) and (
            lacks_processes(ended) or min(counts, default=rule.min_processes) < rule.min_processes
        ):
            self._journal.set_aside(entries_of(outcomes))
        self._earlier.forget([trial.key for trial in trials])
        self._journal.clear()
        for result in ended:
            self._position += 1
            self._finished[result.key] = result
            self._observer.trial_finished(result, self._position, len(self._trials))

    def _outcomes(
        self, trials: Sequence[Trial], settings: RunSettings
    ) -> dict[ResultKey, TrialOutcome]:
        """Races the trials that can run, and records why the others cannot."""
        outcomes: dict[ResultKey, TrialOutcome] = {}
        ready: list[Trial] = []
        for trial in trials:
            try:
                ready.append(self._ready(trial))
            except SessionEnded as ended:
                note_end(record := ProcessRecord(), ended)
                outcomes[trial.key] = TrialOutcome(processes=[record], absence=ended.absence)
        if not ready:
            return outcomes
        artifacts = self._preparation.artifacts[ready[0].workload.digest]
        apart = any(trial.case.model.model_impl.own_process for trial in ready)
        shared = None if apart else self._shared
        race = self._race_of(ready, settings, shared.open if shared else own_session)
        facts = {trial.key: facts_of(trial, artifacts) for trial in ready}
        joined = journal.joined(self._joined, facts, ready[0].workload.digest)
        if joined.others:
            self._observer.say(
                "ignoring processes from interrupted runs, because model, inputs or truth differ: "
                f"{joined.others}"
            )
        race.join(joined)
        race.run()
        outcomes |= race.outcomes
        for trial in ready:
            framework = trial.case.model.model_impl.framework_type.value
            status = outcomes[trial.key].status
            if shared and shared.may_have_failed(trial.competitor, framework, status):
                self._observer.say(
                    f"{trial} failed in a shared worker: retrying it in a separate one"
                )
                again = self._race_of([trial], settings, own_session)
                again.run()
                outcomes |= again.outcomes
        return outcomes

    def _race_of(
        self, trials: Sequence[Trial], settings: RunSettings, open_session: OpenSession
    ) -> Race:
        return Race(
            trials,
            self._preparation.artifacts[trials[0].workload.digest],
            settings,
            log_file=_log_files(settings.log_dir / self._id),
            say=self._observer.say,
            finished=self._process_finished,
            measured=self._journal.append_round,
            profile_dir=settings.profile_dir / self._id if settings.profile else None,
            open_session=open_session,
        )

    def _process_finished(self, entry: journal.Entry) -> None:
        self._journal.append(entry)
        self._observer.process_finished(entry)

    def _ready(self, trial: Trial) -> Trial:
        """Returns a trial with everything that preparation found for it.

        Raises:
          SessionEnded: the trial cannot run.
        """
        if obstacle := _obstacle(trial, self._settings):
            raise obstacle
        if trial.workload.digest not in self._preparation.artifacts:
            raise self._preparation.failures[trial.case.name]
        return self._preparation.completed(trial)

    def _able(self, trials: Iterable[Trial]) -> list[Trial]:
        return [trial for trial in trials if not _obstacle(trial, self._settings)]


def entries_of(outcomes: Mapping[ResultKey, TrialOutcome]) -> list[journal.Entry]:
    """Returns the processes of all trials of a finished race that did not fail."""
    return [
        journal.Entry(
            key=key,
            replicate=replicate,
            wall_s=outcome.wall_s / len(outcome.processes),
            facts=outcome.facts,
            process=process,
        )
        for key, outcome in outcomes.items()
        if outcome.status is Status.OK
        for replicate, process in enumerate(outcome.processes)
    ]


def _report_noise_floor(
    settings: RunSettings, environment: ExecutionEnvironment, observer: Observer
) -> None:
    """Reports what races cannot decide here, if `cbs doctor --noise-floor` has been run."""
    rule, machine = settings.sampling, environment.host.cpu_model
    if not isinstance(rule, SamplingRule) or machine is None:
        return
    floor = load_noise_floor(machine)
    outlook = floor.pooled.outlook(rule) if floor and floor.pooled else None
    if outlook and not outlook.can_decide:
        observer.say(f"noise floor: {outlook}")


def execution_environment(trials: Sequence[Trial], settings: RunSettings) -> ExecutionEnvironment:
    """Returns the environment of a run, including all Python environments of its trials."""
    others = {trial.competitor.environment for trial in trials} - {None}
    environment = {
        "python_environment": python_environment(),
        "host": describe(
            threads=settings.threads, cpus=settings.cpus, threads_from=settings.threads_from
        ),
        "git_revision": git_revision(),
        "environments": {
            other.name: {
                "python": other.python,
                "python_version": other.python_version,
                "python_environment": other.packages,
            }
            for other in sorted(filter(None, others), key=lambda item: item.name)
        },
    }
    return converted(environment, ExecutionEnvironment)


def _unchecked(preparation: Preparation) -> frozenset[str]:
    """Returns workloads whose truth was partly computed by a single implementation."""
    found = preparation.artifacts.items()
    return frozenset(d for d, a in found if a.truth_check and a.truth_check.unchecked)


def _workload_groups(
    trials: Sequence[Trial], settings: RunSettings, unchecked: Collection[str] = ()
) -> list[list[Trial]]:
    """Groups trials by workload, or one by one if counts are fixed.

    Trials of workloads in `unchecked` stay together, because their outputs are evidence about the
    truth. Single trials that share workers are sorted by worker, so that only one is alive at a
    time.
    """
    is_fixed = isinstance(settings.sampling, FixedCounts)
    if is_fixed and settings.share_workers:
        workers = list(dict.fromkeys(map(_worker_of, trials)))
        trials = sorted(trials, key=lambda trial: workers.index(_worker_of(trial)))
    groups: dict[str, list[Trial]] = {}
    for trial in trials:
        apart = is_fixed and trial.workload.digest not in unchecked
        key = str(trial.key) if apart else trial.workload.digest
        groups.setdefault(key, []).append(trial)
    return list(groups.values())


def _worker_of(trial: Trial) -> tuple[str, str]:
    return str(trial.competitor), trial.case.model.model_impl.framework_type.value


def _log_files(directory: Path) -> Callable[[Trial, int], Path]:
    def log_file(trial: Trial, replicate: int) -> Path:
        inputs = trial.case.input_data
        parts = [trial.case.model.name, *trial.key[1:]]
        parts += [inputs.name] * (inputs != INPUT_DATA_MODEL_DEFAULT)
        name = re.sub(r"[^\w.+-]+", "-", "-".join(parts))
        return directory / f"{name}{f'.{replicate}' if replicate else ''}.log"

    return log_file


def _obstacle(trial: Trial, settings: RunSettings) -> SessionEnded | None:
    """Returns why a trial is not run: it is refused, or modules are missing; else None."""
    if trial.refused is not None:
        return SessionEnded(Status.UNSUPPORTED, "prepare", trial.refused)
    absence = trial.competitor.absence(
        trial.case.model.model_impl.framework_type, from_program=settings.exported_programs
    )
    return None if absence is None else SessionEnded.without(absence)
