"""What is run: the cases, and what else a command that makes them has to say."""

from collections.abc import Callable, Iterable, Sequence

import attrs

from comparative_benchmark.engine import preparation
from comparative_benchmark.engine.settings import RunSettings
from comparative_benchmark.engine.trial import Trial
from comparative_benchmark.results.record import Result
from openxla.benchmark.def_types import BenchmarkCase


@attrs.frozen(kw_only=True)
class Selection:
    """What a command runs that makes cases of its own.

    Attributes:
      cases: that are run.
      share_workers: see `RunSettings`.
      refuse: returns why a trial is not to be tried, None if it is; it is `unsupported` then.
      before: returns what is said before the first trial.
      after: is given all results, and returns what is said below them.
    """

    cases: Sequence[BenchmarkCase]
    share_workers: bool = False
    refuse: Callable[[Trial, RunSettings], str | None] = lambda *_: None
    before: Callable[[Sequence[Trial], RunSettings], Iterable[str]] = lambda *_: ()
    after: Callable[[Sequence[Result]], Iterable[str]] = lambda _: ()

    def admitted(self, trials: Iterable[Trial], settings: RunSettings) -> list[Trial]:
        """Returns the trials; those that are not to be tried say why."""
        return [
            attrs.evolve(
                trial,
                refused=trial.refused
                or self.refuse(trial, settings)
                or preparation.why_too_large(trial, settings),
            )
            for trial in trials
        ]
