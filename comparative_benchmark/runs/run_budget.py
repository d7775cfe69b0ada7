"""How long a run may take: whether one more workload is started, and what each trial may spend."""

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Self

import attrs

from comparative_benchmark.results.outcome import TrialOutcome
from comparative_benchmark.runs.resuming import going_on
from comparative_benchmark.runs.settings import RunSettings
from comparative_benchmark.stats.sampling_rule import SamplingRule

# Share of a budget for making inputs and truth: what is prepared must be measured as well.
_PREPARING = 0.5
# After how many of a run's trials its pace is told, and from how many trials on that is of use.
_TELLING, _WORTH_TELLING = (0.1, 0.5), 20


@attrs.define
class RunBudget:
    """The time of a run, from its start on, truth included.

    No workload is started that would not end in time at the pace of those before it. If one takes
    longer, it gets no further processes, and `--resume` adds the processes that it lacks.

    Attributes:
      limit_s: None for no limit.
      fewest: processes that each trial gets.
      shares_workers: whether what a worker imports is there for the next workload, too.
      clock: tells seconds.
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
        """Seconds that are left; infinite without a limit."""
        if self.limit_s is None:
            return float("inf")
        return max(0.0, self.limit_s - (self.clock() - self._started))

    def may_prepare(self) -> bool:
        """Whether the truth of one more workload is made."""
        return self.limit_s is None or self.left_s > (1 - _PREPARING) * self.limit_s

    def may_start(self, trials: int) -> bool:
        """Whether a workload of so many trials is begun."""
        needed_s = trials * self.fewest * self._wall_s / self._processes if self._processes else 0.0
        return self.left_s > needed_s

    def rationed(self, settings: RunSettings, trials: int) -> RunSettings:
        """Returns settings of a workload: the even share of a trial, and the end of the budget."""
        rule = settings.sampling
        if self.limit_s is None or not isinstance(rule, SamplingRule):
            return settings
        share_s = min(rule.trial_budget_s, self.left_s / max(trials, 1))
        rule = attrs.evolve(rule, trial_budget_s=share_s)
        return attrs.evolve(settings, sampling=rule, until=self.clock() + self.left_s)

    def measured(self, outcomes: Iterable[TrialOutcome]) -> None:
        """Learns from the trials of a workload that has ended, as far as they took time."""
        for outcome in outcomes:
            if outcome.wall_s:
                imports = (process.phases.get("import") for process in outcome.processes)
                once_s = sum(phase.ms / 1e3 for phase in imports if phase) * self.shares_workers
                self._wall_s += max(0.0, outcome.wall_s - once_s)
                self._processes += len(outcome.processes)
                self._trials += 1

    def outlook(self, left: int) -> str | None:
        """Returns how long the other trials will take, a few times in a long run; else None."""
        total = self._trials + left
        if total < _WORTH_TELLING or not left or self._told == len(_TELLING):
            return None
        if self._trials < _TELLING[self._told] * total:
            return None
        self._told = sum(self._trials >= part * total for part in _TELLING)
        minutes = self._wall_s / self._trials * left / 60
        return f"{self._trials} of {total} trials: the others take about {minutes:.0f} min"


def left_out_line(left_out: int, trials: int, command: Sequence[str]) -> str:
    """Returns what is said where the budget was too short for some of the trials."""
    return (
        f"--budget is spent: {left_out} of {trials} trials are left out; this goes on with them: "
        f"{going_on(command)}"
    )
