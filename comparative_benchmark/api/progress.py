"""Events of a run, for callbacks of the Python API."""

import sys
from collections.abc import Callable, Sequence

import attrs

from comparative_benchmark.engine.trial import Trial
from comparative_benchmark.results.journal import Entry
from comparative_benchmark.results.record import Result


@attrs.frozen(kw_only=True)
class Progress:
    """One event of a run.

    Attributes:
      event: `preparing` artifacts, a `note`, `started` for the trials of a workload, or `finished`
        for one trial.
      text: description of the event.
      position, total: number of the trial, from 1, and number of trials; 0 for other events.
      result: result of a finished trial.
    """

    event: str
    text: str
    position: int = 0
    total: int = 0
    result: Result | None = None


class Reporter:
    """A `runner.Observer` that calls a function for each event; by default prints in notebooks."""

    def __init__(self, callback: Callable[[Progress], object] | None) -> None:
        is_notebook = "ipykernel" in sys.modules
        self._callback = _print if callback is None and is_notebook else callback

    def preparing(self, what: str) -> None:
        """Reports that artifacts are being prepared."""
        self._report(Progress(event="preparing", text=f"preparing {what}"))

    def say(self, message: str) -> None:
        """Reports a note."""
        self._report(Progress(event="note", text=message))

    def race_started(
        self, trials: Sequence[Trial], position: int, total: int, processes: int
    ) -> None:
        """Reports the start of a workload's trials; see `runner.Observer`."""
        text = f"{trials[0].workload.label}, {len(trials)} of {total} trials"
        self._report(Progress(event="started", text=text, position=position, total=total))

    def process_finished(self, entry: Entry) -> None:
        """Reports nothing; processes are details."""

    def trial_finished(self, result: Result, position: int, total: int) -> None:
        """Reports the result of a trial."""
        definition = result.definition
        text = f"{result.status.value} {definition.model} {definition.competitor}"
        self._report(
            Progress(event="finished", text=text, position=position, total=total, result=result)
        )

    def _report(self, progress: Progress) -> None:
        if self._callback is not None:
            self._callback(progress)


def _print(progress: Progress) -> None:
    place = f"[{progress.position}/{progress.total}] " if progress.total else ""
    print(f"{place}{progress.text}", flush=True)
