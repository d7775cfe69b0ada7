"""The scheduler: competitors of one workload measured against each other.

A race has replicates; in each, every competitor gets one fresh process. A replicate goes through

    start each (order shuffled) -> warm up each, alone -> rounds: a block of each (order shuffled)

and all workers but the one at work are stopped (SIGSTOP), so that they can not take cycles from it.
Interleaving makes the drift of the machine hit all competitors alike; fresh processes show the
variance between processes, which more iterations in one process do not (Kalibera and Jones 2013,
"Rigorous benchmarking in reasonable time"; measured here: 1.7 % for XLA).

Where the workers do not fit into memory together, a replicate goes through as many as do at a time,
and the result says that not all were interleaved.
"""

import random
import tempfile
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

from comparative_benchmark.harness import memory
from comparative_benchmark.harness.participant import Participant
from comparative_benchmark.harness.sampling_rule import FixedCounts, SamplingRule
from comparative_benchmark.harness.settings import RunSettings
from comparative_benchmark.harness.statistics import latency_interval
from comparative_benchmark.harness.trial import Status, Trial, TrialOutcome
from openxla.benchmark.artifacts.workload_store import WorkloadArtifacts

# A worker may grow by so much while it is measured.
_MEMORY_MARGIN = 1.3

LogFile = Callable[[Trial, int], Path]


class Race:
    """Runs the trials of one workload; `outcomes` holds what came of each, in their order."""

    def __init__(
        self,
        trials: Sequence[Trial],
        artifacts: WorkloadArtifacts,
        settings: RunSettings,
        log_file: LogFile,
        say: Callable[[str], None],
    ) -> None:
        self.outcomes = {
            trial.key: TrialOutcome(artifact_digests=artifacts.digests) for trial in trials
        }
        self._trials = list(trials)
        self._artifacts = artifacts
        self._settings = settings
        self._log_file = log_file
        self._say = say
        self._interleaved = len(self._trials) > 1 and not settings.in_process

    def run(self) -> None:
        """Runs replicates until the sampling rule is content."""
        rule = self._settings.sampling
        with tempfile.TemporaryDirectory(prefix="cbs-race-", ignore_cleanup_errors=True) as folder:
            if isinstance(rule, FixedCounts):
                self._run_fixed(rule, Path(folder))
                return
            for replicate in range(rule.max_processes):
                pending = [trial for trial in self._trials if not self.outcomes[trial.key].ended]
                if not pending or (replicate >= rule.min_processes and self._content(rule)):
                    break
                self._replicate(rule, replicate, pending, Path(folder))
            self._note_race(rule)

    def _run_fixed(self, rule: FixedCounts, folder: Path) -> None:
        for trial in self._trials:
            started = time.monotonic()
            participant = self._participant(trial, 0, folder)
            participant.start()
            participant.warm_up(rule.warmup_iterations)
            participant.measure_block(0, rule.iterations)
            participant.finish()
            self._keep(participant, time.monotonic() - started)
            self.outcomes[trial.key].stop_reason = "fixed"

    def _replicate(
        self, rule: SamplingRule, replicate: int, trials: Sequence[Trial], folder: Path
    ) -> None:
        """Gives each trial one fresh process and measures them in turns."""
        order = random.Random(f"{rule.seed}/{replicate}")  # noqa: S311  # an order, no secret
        waiting = order.sample(list(trials), len(trials))
        while waiting:
            started = time.monotonic()
            group: list[Participant] = []
            try:
                while waiting and (not group or self._fits(group)):
                    group.append(self._participant(waiting.pop(0), replicate, folder))
                    self._start(group[-1], rule)
                self._rounds(rule, group, order)
            finally:
                for participant in group:
                    participant.finish()
            for participant in group:
                self._keep(participant, (time.monotonic() - started) / len(group))

    def _fits(self, group: Sequence[Participant]) -> bool:
        """Tells whether one more worker fits into memory beside those that are there."""
        if self._settings.in_process:
            return False
        largest = max(participant.resident_bytes() for participant in group)
        if largest * _MEMORY_MARGIN < memory.default_limit_bytes():
            return True
        if self._interleaved:
            self._say("the competitors do not fit into memory together: not all are interleaved")
        self._interleaved = False
        return False

    def _start(self, participant: Participant, rule: SamplingRule) -> None:
        """Starts and warms up; the worker is stopped before the next one starts."""
        participant.start()
        participant.warm_up_until_steady(rule)
        participant.pause()

    def _rounds(
        self, rule: SamplingRule, participants: Sequence[Participant], order: random.Random
    ) -> None:
        deadline = time.monotonic() + rule.round_budget_s * len(participants)
        for index in range(rule.max_rounds):
            alive = [participant for participant in participants if participant.alive]
            if not alive or (index >= rule.min_rounds and time.monotonic() > deadline):
                break
            for participant in order.sample(alive, len(alive)):
                participant.resume()
                participant.measure_block(
                    index, participant.iterations_per_block, refresh=len(alive) > 1
                )
                participant.pause()

    def _participant(self, trial: Trial, replicate: int, folder: Path) -> Participant:
        label = f"{self._trials.index(trial)}"
        work_dir = folder / label / f"process-{replicate}"
        cache_dir = folder / label / "cache"
        for directory in (work_dir, cache_dir):
            directory.mkdir(parents=True, exist_ok=True)
        return Participant(
            trial,
            self._artifacts,
            self._settings,
            work_dir=work_dir,
            cache_dir=cache_dir,
            log_file=self._log_file(trial, replicate),
        )

    def _keep(self, participant: Participant, wall_s: float) -> None:
        outcome = self.outcomes[participant.trial.key]
        outcome.add(participant.record)
        outcome.wall_s += wall_s

    def _note_race(self, rule: SamplingRule) -> None:
        """Writes down why sampling stopped, and whether rounds may be paired."""
        race_id = uuid.uuid4().hex[:12]
        reason = "precision" if self._content(rule) else "processes"
        for outcome in self.outcomes.values():
            # What failed did not stop for either reason; its status says why it ended.
            outcome.stop_reason = None if outcome.ended else reason
            outcome.race = {"interleaved": self._interleaved, "seed": rule.seed}
            if self._interleaved:
                outcome.race["id"] = race_id

    def _content(self, rule: SamplingRule) -> bool:
        """Tells whether every trial that is still good has an interval as narrow as the goal."""
        for outcome in self.outcomes.values():
            if outcome.status is Status.OK:
                samples = [process.latencies_ms for process in outcome.processes]
                interval = latency_interval(samples, seed=rule.seed)
                if not interval.relative_half_width <= rule.goal:
                    return False
        return True
