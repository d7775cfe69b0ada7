"""The cases to run, with hooks of the command that selected them."""

from collections.abc import Callable, Iterable, Sequence

import attrs

from comparative_benchmark.engine import preparation
from comparative_benchmark.engine.settings import RunSettings
from comparative_benchmark.engine.trial import Trial
from comparative_benchmark.results.record import Result
from openxla.benchmark.def_types import BenchmarkCase


@attrs.frozen(kw_only=True)
class Selection:
    """The cases of a command, with its hooks.

    Attributes:
      cases: cases to run.
      share_workers: see `RunSettings`.
      refuse: returns why a trial must not be run (status `unsupported`), None if it may be.
      before: returns lines to print before the first trial.
      after: called with all results; returns lines to print below them.
    """

    cases: Sequence[BenchmarkCase]
    share_workers: bool = False
    refuse: Callable[[Trial, RunSettings], str | None] = lambda *_: None
    before: Callable[[Sequence[Trial], RunSettings], Iterable[str]] = lambda *_: ()
    after: Callable[[Sequence[Result]], Iterable[str]] = lambda _: ()

    def admitted(self, trials: Iterable[Trial], settings: RunSettings) -> list[Trial]:
        """Returns the trials; `refused` gives the reason for those that must not be run."""
        return [
            attrs.evolve(
                trial,
                refused=trial.refused
                or self.refuse(trial, settings)
                or preparation.why_too_large(trial, settings),
            )
            for trial in trials
        ]
