"""The scheduler: measures the competitors of one workload against each other.

A race has replicates; in each, a competitor gets one fresh process. A replicate goes through

    start each -> warm up each, alone -> rounds: a block of each

in orders that are balanced over replicates and rounds (see `analysis.stats.planning`). All
workers except the active one are stopped (SIGSTOP), so that they cannot take cycles from it.
Interleaving makes drift of the machine affect all competitors alike; fresh processes expose the
variance between processes, which more iterations in one process do not (Kalibera and Jones 2013,
"Rigorous benchmarking in reasonable time"; measured here: 1.7 % for XLA).

The first replicates are a pilot: their spread determines how many more processes each competitor
needs, within its budget.

If the workers do not fit into memory together, a replicate is split into groups that do, and the
result records that not all were interleaved.

The caller is notified of each process as soon as it ends, and can start a race from the processes
of an interrupted one.
"""

import itertools
import random
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from pathlib import Path

import attrs
import numpy as np

from comparative_benchmark.analysis.machine import other_processes
from comparative_benchmark.analysis.machine.gpu_state import GpuMemory
from comparative_benchmark.analysis.machine.host import usable_cpus
from comparative_benchmark.analysis.stats.analysis import Array, Rounds, checked
from comparative_benchmark.analysis.stats.planning import (
    CLOSE_PROCESSES,
    BalancedOrder,
    CompileOnly,
    FixedCounts,
    Outlook,
    SamplingRule,
    outlook,
    ratio_sd,
    replicate_variances,
    stop_reasons,
)
from comparative_benchmark.analysis.verification.plausibility import agreeing
from comparative_benchmark.engine.checks import FIRST_VERIFICATION, OutputChecks, unjudged
from comparative_benchmark.engine.judging import why_not_ranked
from comparative_benchmark.engine.messages import Timeline
from comparative_benchmark.engine.participant import OpenSession, Participant, own_session
from comparative_benchmark.engine.recording import judge_rounds
from comparative_benchmark.engine.session import Hidden
from comparative_benchmark.engine.session_pool import MEMORY_MARGIN
from comparative_benchmark.engine.settings import ProcessPlan, RunSettings
from comparative_benchmark.engine.trial import Trial, first_look
from comparative_benchmark.results.journal import Entry, Joined
from comparative_benchmark.results.outcome import TrialFacts, TrialOutcome
from comparative_benchmark.results.record import (
    FIXED,
    ArtifactSource,
    Block,
    RaceNote,
    ResultKey,
    Status,
)
from comparative_benchmark.results.results_file import converted
from openxla.benchmark.artifacts.workload_store import RouteDifference, WorkloadArtifacts
from openxla.benchmark.files import temporary_folder


def why_enough(
    outcome: TrialOutcome,
    baseline: TrialOutcome | None,
    rule: SamplingRule,
    *,
    competitors: int = 2,
) -> str | None:
    """Returns why a trial needs no more processes, see `stop_reasons`; None if it does.

    Invalid or too few samples are never enough.
    """
    try:
        processes = checked([process.latencies_ms for process in outcome.processes])
        logs = np.log([np.median(samples) for samples in processes])
        ratios, variances = None, None
        if baseline is not None:
            ratios, variances = _replicates(outcome, baseline)
        return str(stop_reasons(logs, ratios, variances, rule, competitors=competitors)) or None
    except ValueError:
        return None


def undecided(outcome: TrialOutcome, baseline: TrialOutcome, rule: SamplingRule) -> Outlook | None:
    """Predicts what a race can detect, with its processes so far as the pilot.

    None if there are too few samples, or if the two differ by more than the race has to resolve.
    """
    try:
        ratios, variances = _replicates(outcome, baseline)
        prediction = outlook(
            float(ratio_sd(ratios, variances)),
            rule,
            process_s=outcome.wall_s / len(outcome.processes),
            measured_s=outcome.measured_s / len(outcome.processes),
        )
    except ValueError:
        return None
    return prediction if abs(np.median(ratios)) < np.log1p(prediction.decidable) else None


def _replicates(outcome: TrialOutcome, baseline: TrialOutcome) -> tuple[Array, Array]:
    """Returns log ratios and variances of the replicates that two trials share.

    Raises:
      SampleError: there are fewer than two.
    """
    both = zip(outcome.processes, baseline.processes, strict=False)
    paired = [pair_rounds(candidate.blocks, other.blocks) for candidate, other in both]
    # After an interruption, the two may share no rounds of a replicate.
    return replicate_variances([rounds for rounds in paired if rounds])


def pair_rounds(candidate: Sequence[Block], baseline: Sequence[Block]) -> Rounds:
    """Returns (candidate, baseline) median latencies of the rounds in which both have a block."""
    before = {block.round: float(np.median(block.latencies_ms)) for block in baseline}
    return [
        (float(np.median(block.latencies_ms)), before[block.round])
        for block in candidate
        if block.round in before
    ]


LogFile = Callable[[Trial, int], Path]


def facts_of(trial: Trial, artifacts: WorkloadArtifacts) -> TrialFacts:
    """Returns the facts shared by all processes of a trial."""
    origin = artifacts.origin
    source = artifacts.truth_source if origin is None else None
    return TrialFacts(
        artifact_digests=artifacts.digests,
        artifact_source=converted(origin, ArtifactSource) if origin else None,
        program_source=trial.program.source if trial.program else None,
        workload_cost=artifacts.cost,
        without_float64=artifacts.without_float64,
        truth_source=source,
        not_ranked=why_not_ranked(trial.competitor.backend, source) or artifacts.not_ranked,
        truth_check=artifacts.truth_check,
        recipe_sqnr_db=trial.noise.weakest if trial.noise else None,
    )


@attrs.define(eq=False)
class Race:
    """Runs the trials of one workload; `outcomes` holds their outcomes, in order."""

    _trials: Sequence[Trial]
    _artifacts: WorkloadArtifacts
    _settings: RunSettings
    _log_file: LogFile
    _say: Callable[[str], None] = print
    _finished: Callable[[Entry], None] = lambda _: None
    _measured: Callable[[Sequence[Entry]], None] = lambda _: None
    _profile_dir: Path | None = None
    _open_session: OpenSession = own_session
    outcomes: dict[ResultKey, TrialOutcome] = attrs.field(init=False)
    timeline: Timeline = attrs.field(factory=Timeline, init=False)
    _shares: bool = attrs.field(init=False)
    _interleaved: bool = attrs.field(init=False)
    _first_round: int = attrs.field(default=0, init=False)
    # Trials whose workers are known to fit into memory together.
    _fitted: frozenset[ResultKey] = attrs.field(default=frozenset(), init=False)
    # Exports of the first process of each trial.
    _exports: dict[ResultKey, Mapping[str, Sequence[str]]] = attrs.field(factory=dict, init=False)
    # Outputs of first runs that differ from the truth.
    _wrong_outputs: dict[ResultKey, Sequence[Path]] = attrs.field(factory=dict, init=False)
    # Smallest difference to the baseline that the pilot predicts to be decidable.
    _decidable: dict[ResultKey, float] = attrs.field(factory=dict, init=False)
    _threads: ThreadPoolExecutor = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        facts = {trial.key: facts_of(trial, self._artifacts) for trial in self._trials}
        self.outcomes = {key: TrialOutcome(facts=of_trial) for key, of_trial in facts.items()}
        self._shares = self._open_session is not own_session
        self._interleaved = len(self._trials) > 1 and not self._settings.in_process

    def join(self, joined: Joined) -> None:
        """Adopts the processes of an interrupted race; they are not run again.

        A trial with a failure is measured again: the outputs of a wrong process are evidence about
        the truth, and are gone.
        """
        self._first_round = joined.first_round
        for key, outcome in self.outcomes.items():
            entries = joined.entries.get(key, ())
            if all(entry.process.status is Status.OK for entry in entries):
                for entry in entries:
                    outcome.add(entry.process, entry.wall_s)

    def run(self) -> None:
        """Runs replicates until the sampling rule is satisfied."""
        rule = self._settings.sampling
        with temporary_folder("race") as folder:
            if isinstance(rule, FixedCounts):
                self._run_fixed(rule, Path(folder))
            elif isinstance(rule, CompileOnly):
                self._compile_only(rule, Path(folder))
            else:
                self._race(rule, Path(folder))
            self._settle_disputes()
        self._write_timeline()

    def _settle_disputes(self) -> None:
        """Marks the truth as in doubt if two runtimes agree with each other but not with it.

        Applies only if a single implementation computed the truth. A runtime that agrees with the
        truth is a second implementation, which removes the doubt.
        """
        check = self._artifacts.truth_check
        if check is None or not check.unchecked or check.in_doubt:
            return
        processes = [p for outcome in self.outcomes.values() for p in outcome.processes]
        if any(process.verification and process.verification.passed for process in processes):
            return
        # The wider limits of quantised programs settle no dispute.
        plain = {trial.key: trial for trial in self._trials if trial.competitor.precision is None}
        wrong = {
            plain[key].competitor.backend.name: paths
            for key, paths in self._wrong_outputs.items()
            if key in plain
        }
        parameters = next((trial.verify_parameters for trial in plain.values()), {})
        due = self._artifacts.first
        pair = agreeing(wrong, due.truth, due.reference, parameters)
        if pair is None:
            return
        doubt = RouteDifference(
            operator=", ".join(check.unchecked),
            node="",
            routes=(check.routes[0], " with ".join(pair)),
        )
        check = attrs.evolve(check, in_doubt=(doubt,))
        for key in self._wrong_outputs:
            outcome = self.outcomes[key]
            outcome.facts = attrs.evolve(outcome.facts, truth_check=check)
            if (ended := outcome.ended_by) is not None:
                ended.status, ended.reason = unjudged(check, ended.reason or "")

    def _run_fixed(self, rule: FixedCounts, folder: Path) -> None:
        for trial in self._trials:
            outcome = self.outcomes[trial.key]
            outcome.stop_reason = FIXED
            outcome.race = RaceNote(shared_workers=self._shares)
            if outcome.processes:
                continue
            started = time.monotonic()
            with self._participant(trial, 0, folder) as participant:
                participant.start()
                participant.warm_up(rule.warmup_iterations)
                participant.measure_block(0, rule.iterations)
                participant.finish()
                self._keep(participant, time.monotonic() - started)
                self._profile(participant)

    def _compile_only(self, rule: CompileOnly, folder: Path) -> None:
        """Compiles with empty caches, then with the caches left by that, repeatedly."""
        orders = BalancedOrder(len(self._trials), random.Random(rule.seed))  # noqa: S311
        for pair, order in zip(range(rule.pairs), orders):
            for trial in (self._trials[place] for place in order):
                outcome = self.outcomes[trial.key]
                outcome.stop_reason = "compile_only"
                # If an interruption split a pair, its caches are gone.
                if sum(not process.cold for process in outcome.processes) > pair:
                    continue
                for _ in range(2):
                    if outcome.ended:
                        break
                    started = time.monotonic()
                    number = len(outcome.processes)
                    with self._participant(trial, number, folder / f"pair-{pair}") as participant:
                        participant.start()
                        participant.check(OutputChecks.verify_rest)
                        participant.close()
                        self._keep(participant, time.monotonic() - started)

    def _race(self, rule: SamplingRule, folder: Path) -> None:
        with self._starting():
            for replicate in range(rule.max_processes):
                pending = self._pending(rule, replicate)
                if replicate == rule.min_processes:
                    self._announce(rule, pending)
                if not pending:
                    break
                ran = [self.outcomes[trial.key].processes for trial in pending]
                verified = all(any(p.final_verification for p in each) for each in ran)
                if verified and time.monotonic() >= self._settings.until:
                    for trial in pending:
                        outcome = self.outcomes[trial.key]
                        outcome.stop_reason = outcome.stop_reason or "budget"
                    break
                lacking = [t for t in pending if len(self.outcomes[t.key].processes) <= replicate]
                self._replicate(rule, replicate, lacking, folder)
                if replicate == 0 and lacking:
                    self._tell_first_look(rule)
        judge_rounds(self.outcomes, interleaved=self._interleaved)
        self._note_race(rule)

    def _pending(self, rule: SamplingRule, replicate: int) -> list[Trial]:
        """Returns the trials that take part in a replicate.

        The baseline takes part as long as any other trial does, because they are paired with it.
        """
        good = [trial for trial in self._trials if not self.outcomes[trial.key].ended]
        if replicate < rule.min_processes:
            return good
        baseline = self._baseline(good)
        pending = []
        for trial in good:
            outcome = self.outcomes[trial.key]
            if outcome.stop_reason is None:
                other = self.outcomes[baseline.key] if baseline and trial is not baseline else None
                reason = why_enough(outcome, other, rule, competitors=len(good))
                if reason is None and _spent_s(outcome) > rule.trial_budget_s:
                    reason = "budget"
                outcome.stop_reason = reason
            if outcome.stop_reason is None:
                pending.append(trial)
        if baseline and pending and baseline not in pending:
            pending.append(baseline)
        return pending

    def _tell_first_look(self, rule: SamplingRule) -> None:
        raced = [(trial, self.outcomes[trial.key]) for trial in self._trials]
        if look := first_look(raced, rule.min_processes):
            self._say(look)

    def _announce(self, rule: SamplingRule, pending: Sequence[Trial]) -> None:
        """Reports differences that cannot be detected here, before spending time on them."""
        baseline = self._baseline([t for t in self._trials if not self.outcomes[t.key].ended])
        for trial in pending:
            if baseline is None or trial is baseline:
                continue
            if outlook := undecided(self.outcomes[trial.key], self.outcomes[baseline.key], rule):
                self._decidable[trial.key] = outlook.decidable
                if not outlook.can_decide:
                    self._say(f"{trial} against {baseline.competitor}: {outlook}")

    def _baseline(self, good: Sequence[Trial]) -> Trial | None:
        """Returns the baseline of ratios: the named trial, else the first one."""
        if not self._interleaved or len(good) < 2:
            return None
        named = (trial for trial in good if str(trial.competitor) == self._settings.baseline)
        return next(named, good[0])

    def _replicate(
        self, rule: SamplingRule, replicate: int, trials: Sequence[Trial], folder: Path
    ) -> None:
        """Starts one fresh process per trial and measures them in alternation."""
        random_order = random.Random(f"{rule.seed}/{replicate}")  # noqa: S311  # an order, no secret
        starts = [trial for trial in self._starts(rule, replicate) if trial in trials]
        waiting = [self._participant(trial, replicate, folder) for trial in starts]
        while waiting:
            started = time.monotonic()
            with ExitStack() as workers:
                group = self._bring_up(rule, waiting, workers, started)
                self._rounds(rule, group, random_order, started)
                for participant in group:
                    participant.finish()
                    self._keep(participant, (time.monotonic() - started) / len(group))
                if self._profile_dir is not None:
                    self._profile_last(rule, replicate, group, is_all=not waiting)
            if waiting:  # the next group is not interleaved with this one
                self._first_round += rule.max_rounds

    def _starts(self, rule: SamplingRule, replicate: int) -> list[Trial]:
        """Returns the order of starts in a replicate, balanced over replicates."""
        orders = BalancedOrder(len(self._trials), random.Random(f"{rule.seed}/starts"))  # noqa: S311
        order = next(itertools.islice(orders, replicate, None))
        return [self._trials[place] for place in order]

    def _bring_up(
        self, rule: SamplingRule, waiting: list[Participant], workers: ExitStack, started: float
    ) -> list[Participant]:
        """Starts and warms up as many waiting participants as fit into memory together.

        Each compiles and warms up alone. If all are known to fit, they load in parallel first,
        except in the first process of a trial, whose load times are part of the results.
        """
        together = not any(p.plan.cold and not p.plan.compiles_anew for p in waiting)
        # Workers die with the thread that started them, but shared workers must outlive the race.
        together = together and self._settings.load_together and not self._shares
        if together and self._fitted >= _keys(waiting):
            for participant in waiting:
                workers.enter_context(participant)
            self._in_threads(Participant.load, waiting)
        on_gpu = self._settings.device.accelerator_type != "cpu"
        gpu = GpuMemory() if on_gpu else None
        group: list[Participant] = []
        while waiting and (not group or waiting[0].loaded or self._fits(group, gpu)):
            participant = waiting.pop(0)
            if not participant.loaded:
                workers.enter_context(participant)
                participant.load()
            participant.compile()
            participant.warm_up_until_steady(rule)
            participant.pause()
            group.append(participant)
            self._keep_ended(group, started)
        if len(group) > len(self._fitted):
            self._fitted = _keys(group)
        return group

    @contextmanager
    def _starting(self) -> Iterator[None]:
        """Provides threads that start workers.

        They live as long as the race, because workers die with the thread that started them. More
        threads than CPUs would slow down each start and speed up none.
        """
        with ThreadPoolExecutor(max(2, usable_cpus() // 2)) as self._threads:
            yield

    def _in_threads(
        self, function: Callable[[Participant], None], participants: Sequence[Participant]
    ) -> None:
        """Calls a function for several participants in parallel, while nothing is measured."""
        futures = [self._threads.submit(function, participant) for participant in participants]
        try:
            for future in futures:
                future.result()
        except BaseException:
            for future, participant in zip(futures, participants, strict=True):
                future.cancel()
                participant.interrupt()
            # Only the thread that communicates with a worker may close its pipes.
            wait(futures)
            raise

    def _profile_last(
        self, rule: SamplingRule, replicate: int, group: Sequence[Participant], *, is_all: bool
    ) -> None:
        """Profiles the workers of trials that need no more processes.

        While other participants of the replicate are unmeasured, it is not known which these are:
        all are profiled then, and profiles of later processes replace earlier ones.
        """
        following: list[Trial] = []
        if replicate + 1 < rule.max_processes and (is_all or replicate + 1 < rule.min_processes):
            following = self._pending(rule, replicate + 1)
        for participant in group:
            if participant.trial not in following or time.monotonic() >= self._settings.until:
                self._profile(participant)

    def _profile(self, participant: Participant) -> None:
        if self._profile_dir is None:
            return
        trial = participant.trial
        taken = participant.profile(self._profile_dir / self._log_file(trial, 0).stem)
        if taken is not None:
            self.outcomes[trial.key].profile = taken

    def _write_timeline(self) -> None:
        """Writes the timeline of all workers; if that fails, no results are lost."""
        if self._profile_dir is None:
            return
        path = self._profile_dir / f"{self._log_file(self._trials[0], 0).stem}.timeline.json"
        try:
            self.timeline.write(path)
        except OSError as error:
            self._say(f"the timeline cannot be written: {error}")
            return
        for outcome in self.outcomes.values():
            outcome.timeline = str(path)

    def _fits(self, group: Sequence[Participant], gpu: GpuMemory | None) -> bool:
        """Returns whether one more worker fits next to the running ones, on host and GPU."""
        if self._settings.in_process:
            return False
        largest = max(participant.resident_bytes() for participant in group)
        if largest * MEMORY_MARGIN >= other_processes.default_limit_bytes():
            lacking = "memory"
        elif gpu is not None and not gpu.has_room(MEMORY_MARGIN):
            lacking = "GPU memory"
        else:
            return True
        if self._interleaved:
            self._say(f"the competitors do not all fit into {lacking}, so some are not interleaved")
        self._interleaved = False
        return False

    def _rounds(
        self,
        rule: SamplingRule,
        participants: Sequence[Participant],
        random_order: random.Random,
        started: float,
    ) -> None:
        deadline = time.monotonic() + rule.round_budget_s * len(participants)
        orders = BalancedOrder(len(participants), random_order)
        for index in range(rule.max_rounds):
            alive = [participant for participant in participants if participant.alive]
            if index >= rule.min_rounds:
                late = "budget" if time.monotonic() > deadline else None
                for participant in alive:
                    participant.record.stop_reason = late or participant.why_enough_rounds(rule)
                if all(participant.record.stop_reason for participant in alive):
                    return
            order = [participants[place] for place in next(orders)]
            for participant in (participant for participant in order if participant in alive):
                participant.resume()
                participant.measure_block(
                    self._first_round + index,
                    participant.iterations_per_block,
                    refresh=len(alive) > 1,
                )
                participant.pause()
            self._keep_ended(alive, started)
            self._keep_round(participants, self._first_round + index, started)
        for participant in participants:
            if participant.alive:
                participant.record.stop_reason = participant.record.stop_reason or "rounds"

    def _participant(self, trial: Trial, replicate: int, folder: Path) -> Participant:
        label = f"{self._trials.index(trial)}"
        work_dir = folder / label / f"process-{replicate}"
        # Choices that a compiler makes by measuring are part of the variance between processes.
        anew = trial.autotunes and not isinstance(self._settings.sampling, CompileOnly)
        cache_dir = folder / label / (f"cache-{replicate}" if anew else "cache")
        cold = not cache_dir.exists()
        for directory in (work_dir, cache_dir):
            directory.mkdir(parents=True, exist_ok=True)
        plan = ProcessPlan(
            replicate=replicate,
            work_dir=work_dir,
            cache_dir=cache_dir,
            log_file=self._log_file(trial, replicate),
            cold=cold,
            track=self.timeline.process(
                f"{trial}, process {replicate}",
                shown=f"{trial.competitor}, process {self._number(replicate)}",
            ),
            framework=trial.case.model.model_impl.framework_type.value,
            compiles_anew=anew and replicate > 0,
            exports={} if anew else self._exports.get(trial.key, {}),
            hidden=Hidden.of(self._artifacts.directory, trial.program),
        )
        return Participant(trial, self._artifacts, self._settings, plan, self._open_session)

    def _number(self, replicate: int) -> str:
        """Returns e.g. `2 of 3`, with the currently known number of processes of a trial."""
        rule = self._settings.sampling
        if isinstance(rule, SamplingRule) and replicate >= rule.min_processes:
            return f"{replicate + 1} of at most {rule.max_processes}"
        return f"{replicate + 1} of {rule.min_processes}"

    def _keep_round(self, participants: Sequence[Participant], number: int, started: float) -> None:
        """Journals the blocks of a round, in case the race is interrupted."""
        alive = [participant for participant in participants if participant.alive]
        wall_s = (time.monotonic() - started) / len(participants)
        self._measured([self._round_of(participant, number, wall_s) for participant in alive])

    def _round_of(self, participant: Participant, number: int, wall_s: float) -> Entry:
        record = participant.record
        is_first = len(record.blocks) + len(record.void_blocks) == 1
        record = attrs.evolve(
            record,
            blocks=[block for block in record.blocks if block.round == number],
            void_blocks=[block for block in record.void_blocks if block.round == number],
            warmup_latencies_ms=record.warmup_latencies_ms if is_first else [],
            stop_reason="interrupted",
        )
        return attrs.evolve(self._entry(participant, wall_s), process=record, partial=True)

    def _entry(self, participant: Participant, wall_s: float) -> Entry:
        key = participant.trial.key
        return Entry(
            key=key,
            replicate=participant.plan.replicate,
            wall_s=wall_s,
            facts=self.outcomes[key].facts,
            process=participant.record,
        )

    def _keep_ended(self, participants: Sequence[Participant], started: float) -> None:
        """Records participants that failed early as soon as possible."""
        for participant in participants:
            if not participant.alive:
                self._keep(participant, (time.monotonic() - started) / len(participants))

    def _keep(self, participant: Participant, wall_s: float) -> None:
        """Records a finished process, once."""
        key, record = participant.trial.key, participant.record
        outcome = self.outcomes[key]
        if any(stored is record for stored in outcome.processes):
            return
        if self._shares:
            participant.forget_peaks()
        outcome.add(record, wall_s)
        if record.status is Status.WRONG_OUTPUT and record.phase == FIRST_VERIFICATION:
            self._wrong_outputs[key] = participant.outputs
        if self._settings.keep_exports and not isinstance(self._settings.sampling, CompileOnly):
            self._exports.setdefault(key, participant.exports)
        self._finished(self._entry(participant, wall_s))

    def _note_race(self, rule: SamplingRule) -> None:
        """Records why sampling stopped and whether rounds may be paired."""
        race_id = uuid.uuid4().hex[:12]
        for key, outcome in self.outcomes.items():
            # The status of a failed trial gives the reason why it ended.
            outcome.stop_reason = None if outcome.ended else outcome.stop_reason or "processes"
            outcome.race = RaceNote(
                interleaved=self._interleaved,
                seed=rule.seed,
                id=race_id if self._interleaved else None,
                shared_workers=self._shares,
                decidable=self._decidable.get(key),
            )


def _spent_s(outcome: TrialOutcome) -> float:
    """Returns the time charged to a trial's budget: measuring time at first, later all time.

    Start-up must not deprive slow starters of the processes that any verdict needs.
    """
    is_enough = len(outcome.processes) >= CLOSE_PROCESSES
    return outcome.wall_s if is_enough else outcome.measured_s


def _keys(participants: Sequence[Participant]) -> frozenset[ResultKey]:
    return frozenset(participant.trial.key for participant in participants)
