"""What a person sees of transfers: progress on stderr, what came of it on stdout."""

from contextlib import AbstractContextManager

from rich.text import Text

from comparative_benchmark.terminal.console import StatusScreen
from comparative_benchmark.terminal.screen import Screen as Paper
from openxla.benchmark.artifacts.progress import Progress


class Screen:
    """A status line on standard error; what was asked for on standard output."""

    def __init__(self) -> None:
        self._out = Paper(soft_wrap=True)
        self._err = StatusScreen()

    def print(self, message: str) -> None:
        """Prints a line of what was asked for."""
        self.close()
        self._out.print(Text(message))

    def say(self, message: str, style: str = "") -> None:
        """Prints a line of progress, or of advice."""
        self._err.print(Text(message, style=style))

    def progress(self, progress: Progress) -> None:
        """Shows how far a transfer is, its rate, and how long it will take."""
        self._err.show_status(str(progress))

    def following(self) -> AbstractContextManager[None]:
        """Shows what workers do while the block lasts."""
        return self._err.following()

    def close(self) -> None:
        """Clears the live line."""
        self._err.erase()
