"""A run: plan the trials, prepare their artifacts, run them and store each result."""

import re
import secrets
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol, Self

import attrs
from msgspec import UNSET

from comparative_benchmark.analysis.machine.host import describe, git_revision, python_environment
from comparative_benchmark.analysis.stats.planning import (
    CompileOnly,
    FixedCounts,
    SamplingRule,
)
from comparative_benchmark.engine.checks import note_end
from comparative_benchmark.engine.participant import OpenSession, own_session
from comparative_benchmark.engine.preparation import Preparation
from comparative_benchmark.engine.race import Race, facts_of
from comparative_benchmark.engine.recording import to_result
from comparative_benchmark.engine.resuming import resume_command
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
from openxla.benchmark.workloads import training_of, trains, workload_of


@attrs.define(kw_only=True)
class Leftover:
    """Results and processes of earlier runs that a new run can use.

    Attributes:
      settings: settings of the run, with a seed.
      done: results that need not be measured again.
    """

    settings: RunSettings
    done: dict[ResultKey, Result]
    _interrupted: list[journal.Interrupted]
    _undecided: list[journal.Interrupted]
    _continued: frozenset[ResultKey]
    _say: Callable[[str], None]
    _resume: bool

    @classmethod
    def of(
        cls,
        trials: Sequence[Trial],
        settings: RunSettings,
        results: ResultsFile,
        say: Callable[[str], None],
        *,
        resume: bool,
    ) -> Self:
        """Reads the results file and the journals of its runs.

        Args:
          trials: trials of the run.
          settings: settings of the run; a missing seed is taken from an earlier run, or drawn.
          results: the results file.
          say: called with a line for each journal that cannot be read.
          resume: whether the run may use earlier results and processes.
        """
        old = results.results()
        stored = {(result.run_id, result.key) for result in old}
        runs, complaints = journal.interrupted_runs(results.path, stored)
        for complaint in complaints:
            say(complaint)
        undecided = [run for run in runs if run.undecided]
        continued = _continued(trials, settings, undecided) if resume else frozenset()
        to_continue = [run for run in undecided if any(e.key in continued for e in run.entries)]
        interrupted = [run for run in runs if not run.undecided]
        return cls(
            settings=_with_seed(settings, (*interrupted, *to_continue) if resume else ()),
            done=_done(trials, settings, old, continued) if resume else {},
            interrupted=interrupted,
            undecided=undecided,
            continued=continued,
            say=say,
            resume=resume,
        )

    def joining(self, now: journal.Settings) -> list[journal.Interrupted]:
        """Returns the earlier runs that a run with these settings continues, oldest first.

        Reports them, and why other runs are not continued.
        """
        joined = []
        for run in self._interrupted:
            many = "es" * (len(run.entries) != 1)
            count = f"{len(run.entries)} process{many} of an interrupted run in {run.path}"
            torn = "; its last line was cut short and is left out" if run.torn else ""
            if not self._resume:
                self._say(f"{count} are in no result: --resume continues with them{torn}")
            elif different := run.settings.differences(now):
                self._say(f"{count} are not used: {'; '.join(different)}{torn}")
            else:
                self._say(f"{count}: continuing with them{torn}")
                joined.append(run)
        for run in self._undecided:
            entries = [entry for entry in run.entries if entry.key in self._continued]
            count = f"{len(entries)} processes of an undecided race in {run.path}"
            if not entries:
                continue
            if different := run.settings.differences(now, stopping=False):
                self._say(f"{count} cannot be added to: {'; '.join(different)}")
            else:
                self._say(f"{count}: adding more to them")
                joined.append(run)
        self._interrupted = [run for run in joined if not run.undecided]
        return joined

    def forget(self, keys: Collection[ResultKey]) -> None:
        """Removes the processes of trials whose new results are stored."""
        for run in (*self._interrupted, *self._undecided):
            run.forget(keys)


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


def _continued(
    trials: Sequence[Trial], settings: RunSettings, undecided: Sequence[journal.Interrupted]
) -> frozenset[ResultKey]:
    """Returns the trials of undecided races that have fewer processes than requested."""
    rule = settings.sampling
    if not isinstance(rule, SamplingRule):
        return frozenset()
    counts = Counter(entry.key for run in undecided for entry in run.entries)
    races: defaultdict[str, list[ResultKey]] = defaultdict(list)
    for trial in trials:
        if trial.key in counts:
            races[trial.workload.digest].append(trial.key)
    return frozenset(
        key
        for keys in races.values()
        if min(counts[key] for key in keys) < rule.min_processes
        for key in keys
    )


def _done(
    trials: Sequence[Trial],
    settings: RunSettings,
    old: Sequence[Result],
    continued: Collection[ResultKey],
) -> dict[ResultKey, Result]:
    # The name of a user model stays the same when its file changes.
    due = {trial.key: trial.workload.digest for trial in trials}
    alone = {trial.key for trial in trials if trial.case.model.model_impl.own_process}
    return {
        r.key: r
        for r in old
        if r.status is Status.OK
        and r.key not in continued
        and r.definition.outputs == settings.outputs
        and r.definition.workload.digest == due.get(r.key)
        # Such models used to share a process, which could have corrupted their truth.
        and (r.key not in alone or r.measured.truth_source is not UNSET)
    }


def _with_seed(settings: RunSettings, runs: Sequence[journal.Interrupted]) -> RunSettings:
    """Returns settings with a seed: the given one, that of an earlier run, or a random one."""
    rule = settings.sampling
    if isinstance(rule, FixedCounts) or rule.seed is not None:
        return settings
    seeds = [run.settings.sampling.get("seed") for run in runs]
    drawn = next((seed for seed in seeds if isinstance(seed, int)), secrets.randbelow(2**31))
    return attrs.evolve(settings, sampling=attrs.evolve(rule, seed=drawn))


# Share of the budget for inputs and truth; the rest is left for measuring.
_PREPARING = 0.5
# Report progress after these fractions of the trials, in runs of at least so many trials.
_TELLING, _WORTH_TELLING = (0.1, 0.5), 20


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
    _told: int = attrs.field(default=0, init=False)

    @classmethod
    def of(cls, settings: RunSettings) -> Self:
        """Returns the budget of a run that starts now."""
        rule = settings.sampling
        fewest = rule.min_processes if isinstance(rule, SamplingRule) else 1
        return cls(settings.budget_s, fewest, settings.share_workers)

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
        if total < _WORTH_TELLING or not left or self._told == len(_TELLING):
            return None
        if self._trials < _TELLING[self._told] * total:
            return None
        self._told = sum(self._trials >= part * total for part in _TELLING)
        minutes = self._wall_s / self._trials * left / 60
        return f"{self._trials} of {total} trials: the others take about {minutes:.0f} min"


def left_out_line(left_out: int, trials: int, command: Sequence[str]) -> str:
    """Returns the message for trials that were skipped because the budget ran out."""
    return (
        f"--budget is spent: {left_out} of {trials} trials are left out; this goes on with them: "
        f"{resume_command(command)}"
    )


class Observer(Protocol):
    """Receives progress of a run."""

    def preparing(self, what: str) -> None:
        """Artifacts are being prepared."""

    def say(self, message: str) -> None:
        """Reports a message to the user."""

    def race_started(self, trials: Sequence[Trial], position: int, total: int) -> None:
        """The trials of a workload start; `position` is that of the first, counted from 1."""

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
    with ExitStack() as stack:
        if resume:
            stack.enter_context(results.resumed_alone(observer.say))
        return _execute(trials, settings, results, observer, command=command, resume=resume)


def _execute(
    trials: Sequence[Trial],
    settings: RunSettings,
    results: ResultsFile,
    observer: Observer,
    *,
    command: Sequence[str],
    resume: bool,
) -> list[Result]:
    budget = RunBudget.of(settings)
    leftover = Leftover.of(trials, settings, results, observer.say, resume=resume)
    settings, done = leftover.settings, leftover.done
    rule = settings.sampling
    environment = execution_environment(trials, settings)
    run_id = results.start_run(execution_environment=environment, command=command)
    pending = [trial for trial in trials if trial.key not in done]
    now = journal.Settings.of(
        run_id, settings.device.name, settings.sampling, environment, settings.outputs
    )
    earlier = leftover.joining(now)
    now = attrs.evolve(now, joined=tuple(run.settings.run_id for run in earlier))
    found: dict[ResultKey, Result] = dict(done)
    _foretell(settings, environment, observer)
    with ExitStack() as stack:
        kept = stack.enter_context(journal.Journal(results.path, now, say=observer.say))
        shared = None
        if settings.share_workers and not isinstance(rule, CompileOnly):
            raced = isinstance(rule, SamplingRule)
            shared = stack.enter_context(SharedWorkers(settings.log_dir / run_id, raced=raced))
        preparation = Preparation(settings, observer.preparing)
        tried = [trial for trial in pending if not _missing(trial, settings)]
        preparation.run(tried, budget.may_prepare)
        position, left = 0, len(tried)
        for group in _workload_groups(trials, settings, _unchecked(preparation)):
            racing = [trial for trial in group if trial.key not in done]
            position += len(group) - len(racing)
            able = [trial for trial in racing if not _missing(trial, settings)]
            prepared = all(map(preparation.has_tried, able))
            if able and not (prepared and budget.may_start(len(able))):
                continue
            if racing:
                observer.race_started(racing, position + 1, len(trials))
            rationed = budget.rationed(settings, left)
            left -= len(able)
            workload = Workload(racing, preparation, rationed, run_id, observer, shared)
            outcomes = workload.outcomes(earlier, kept)
            budget.measured(outcomes[trial.key] for trial in able)
            ended = [
                to_result(trial, outcomes[trial.key], run_id=run_id, outputs=settings.outputs)
                for trial in racing
            ]
            if ended:
                results.append(*ended)
                if isinstance(rule, SamplingRule) and lacks_processes(ended):
                    kept.set_aside(entries_of(outcomes))
                leftover.forget([trial.key for trial in racing])
                kept.clear()
            for result in ended:
                position += 1
                found[result.key] = result
                observer.trial_finished(result, position, len(trials))
            if outlook := budget.outlook(left):
                observer.say(outlook)
    if left_out := len(trials) - len(found):
        observer.say(left_out_line(left_out, len(trials), command))
    return [found[trial.key] for trial in trials if trial.key in found]


def _foretell(settings: RunSettings, environment: ExecutionEnvironment, observer: Observer) -> None:
    """Reports what races cannot decide here, if `cbs doctor --noise-floor` has been run."""
    rule, machine = settings.sampling, environment.host.cpu_model
    if not isinstance(rule, SamplingRule) or machine is None:
        return
    floor = load_noise_floor(machine)
    outlook = floor.pooled.outlook(rule) if floor and floor.pooled else None
    if outlook and not outlook.can_decide:
        observer.say(f"by the noise floor {outlook}")


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
    checks = ((digest, found.truth_check) for digest, found in preparation.artifacts.items())
    return frozenset(digest for digest, check in checks if check and check.unchecked)


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


@attrs.frozen
class Workload:
    """The trials of one workload in a run."""

    trials: Sequence[Trial]
    preparation: Preparation
    settings: RunSettings
    run_id: str
    observer: Observer
    shared: SharedWorkers | None = None

    def outcomes(
        self,
        earlier: Sequence[journal.Interrupted],
        kept: journal.Journal,
    ) -> dict[ResultKey, TrialOutcome]:
        """Races the trials that can run, and records why the others cannot.

        Args:
          earlier: interrupted runs to continue.
          kept: the journal of the run.
        """
        found: dict[ResultKey, TrialOutcome] = {}
        ready: list[Trial] = []
        for trial in self.trials:
            try:
                ready.append(self._ready(trial))
            except SessionEnded as ended:
                found[trial.key] = _ended(ended)
        if not ready:
            return found
        artifacts = self.preparation.artifacts[ready[0].workload.digest]
        apart = any(trial.case.model.model_impl.own_process for trial in ready)
        shared = None if apart else self.shared
        race = self._race(ready, kept, shared.open if shared else own_session)
        joined = journal.joined(earlier, {t.key: facts_of(t, artifacts) for t in ready})
        if joined.others:
            self.observer.say(
                f"{joined.others} processes of interrupted runs had other inputs or truth "
                "than now and are not used"
            )
        race.join(joined)
        race.run()
        found |= race.outcomes
        for trial in ready:
            framework = trial.case.model.model_impl.framework_type.value
            status = found[trial.key].status
            if shared and shared.may_have_failed(trial.competitor, framework, status):
                self.observer.say(f"{trial} failed in a worker that had served others: again alone")
                again = self._race([trial], kept, own_session)
                again.run()
                found |= again.outcomes
        return found

    def _race(
        self,
        trials: Sequence[Trial],
        kept: journal.Journal,
        open_session: OpenSession,
    ) -> Race:
        settings = self.settings
        return Race(
            trials,
            self.preparation.artifacts[trials[0].workload.digest],
            settings,
            log_file=_log_files(settings.log_dir / self.run_id),
            say=self.observer.say,
            finished=kept.append,
            measured=kept.append_round,
            profile_dir=settings.profile_dir / self.run_id if settings.profile else None,
            open_session=open_session,
        )

    def _ready(self, trial: Trial) -> Trial:
        """Returns a trial with everything that preparation found for it.

        Raises:
          SessionEnded: the trial cannot run.
        """
        if missing := _missing(trial, self.settings):
            raise missing
        if trial.workload.digest not in self.preparation.artifacts:
            raise self.preparation.failures[trial.case.name]
        return self.preparation.completed(trial)


def _log_files(directory: Path) -> Callable[[Trial, int], Path]:
    def log_file(trial: Trial, replicate: int) -> Path:
        name = re.sub(r"[^\w.+-]+", "-", "-".join((trial.case.model.name, *trial.key[1:])))
        return directory / f"{name}{f'.{replicate}' if replicate else ''}.log"

    return log_file


def _missing(trial: Trial, settings: RunSettings) -> SessionEnded | None:
    """Returns why a trial is not run: it is refused, or modules are missing; else None."""
    if trial.refused is not None:
        return SessionEnded(Status.UNSUPPORTED, "prepare", trial.refused)
    absence = trial.competitor.absence(
        trial.case.model.model_impl.framework_type, from_program=settings.exported_programs
    )
    return None if absence is None else SessionEnded.without(absence)


def _ended(ended: SessionEnded) -> TrialOutcome:
    record = ProcessRecord()
    note_end(record, ended)
    return TrialOutcome(processes=[record], absence=ended.absence)
