"""Terminal output of transfers: progress on stderr, results on stdout."""

from contextlib import AbstractContextManager

from rich.text import Text

from comparative_benchmark.terminal.console import StatusScreen
from comparative_benchmark.terminal.screen import Screen as Paper
from openxla.benchmark.artifacts.progress import Progress


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
