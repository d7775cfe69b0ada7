"""Terminal output of `cbs artifacts`: progress on stderr, results on stdout."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from rich.text import Text

from comparative_benchmark.maintenance.artifacts.outcomes import Ending, Outcome
from comparative_benchmark.terminal.screen import Screen as Paper
from comparative_benchmark.terminal.status import StatusScreen
from openxla.benchmark.artifacts.stores import Progress, human_bytes

_STYLES = {
    Ending.OK: "green",
    Ending.NOT_RUN: "yellow",
    Ending.UNSUPPORTED: "yellow",
    Ending.WRONG_OUTPUT: "red",
    Ending.FAILED: "red",
}


class Screen:
    """Prints a status line to stderr, and results to stdout."""

    def __init__(self) -> None:
        self._out = Paper(soft_wrap=True)
        self._err = StatusScreen()

    def print(self, message: str) -> None:
        """Prints a line of the result."""
        self.close()
        self._out.print(Text(message))

    def say(self, message: str, style: str = "") -> None:
        """Prints a line of progress or advice."""
        self._err.print(Text(message, style=style))

    def progress(self, progress: Progress) -> None:
        """Shows the progress of a transfer, its rate, and the remaining time."""
        self._err.show_status(str(progress))

    def following(self) -> AbstractContextManager[None]:
        """Shows what workers do while the block runs."""
        return self._err.following()

    def close(self) -> None:
        """Clears the live line."""
        self._err.erase()


class ExportScreen(Screen):
    """Prints progress to stderr, and the locations of artifacts to stdout."""

    def __init__(self, *, verbose: bool) -> None:
        super().__init__()
        self._verbose = verbose

    def preparing(self, what: str) -> None:
        """Prints which data of a model is created before its exports."""
        self.say(f"preparing  {what}")

    def export_finished(self, outcome: Outcome, position: int, total: int) -> None:
        """See `generation.Observer`."""
        line = Text(f"[{position:>{len(str(total))}}/{total}] ")
        line.append(f"{outcome.ending.value:<13}", style=_STYLES[outcome.ending])
        line.append(f" {outcome.model}  {outcome.kind}")
        if outcome.ending.leaves_files:
            line.append(f"  {human_bytes(outcome.size_bytes)}")
            if outcome.relative_error is not None:
                line.append(f"  error {outcome.relative_error:.1e}")
        if outcome.wall_s:
            line.append(f"  {outcome.wall_s:.1f} s")
        if outcome.reason:
            line.append(f"  {outcome.reason}")
        self._err.print(line)
        self._err.at(outcome.model, position, total)
        if self._verbose and outcome.ending is not Ending.OK:
            if outcome.log_file:
                self.say(f"    log: {outcome.log_file}")
            if outcome.traceback:
                lines = outcome.traceback.splitlines()
                self.say("".join(f"    {text}\n" for text in lines).rstrip())

    def show(self, root: Path, models: Sequence[str], outcomes: Sequence[Outcome]) -> None:
        """Prints the models' directories, and the number of exports by ending."""
        for model in models:
            size = sum(outcome.size_bytes for outcome in outcomes if outcome.model == model)
            self.print(f"{root / model}  {human_bytes(size)}")
        counts = {
            ending: sum(outcome.ending is ending for outcome in outcomes) for ending in Ending
        }
        told = ", ".join(f"{number} {ending.value}" for ending, number in counts.items() if number)
        what = f"models: {len(models)}, artifacts: {len(outcomes)}"
        self.print(f"{what} ({told})" if told else what)
