"""What a person sees of transfers: progress on stderr, what came of it on stdout."""

import time

from rich.control import Control
from rich.segment import ControlType
from rich.text import Text

from comparative_benchmark.terminal.screen import Screen as Paper
from openxla.benchmark.artifacts.progress import Progress

# Where no line can be written over, a log must not fill with them.
_EVERY_S = 5.0


class Screen:
    """A line that is written over in a terminal; elsewhere, one every few seconds."""

    def __init__(self) -> None:
        self._out = Paper(soft_wrap=True)
        self._err = Paper(stderr=True, soft_wrap=True)
        self._live = False
        self._told_at = time.monotonic()

    def print(self, message: str) -> None:
        """Prints a line of what was asked for."""
        self.close()
        self._out.print(Text(message))

    def say(self, message: str, style: str = "") -> None:
        """Prints a line of progress, or of advice."""
        self.close()
        self._err.print(Text(message, style=style))

    def progress(self, progress: Progress) -> None:
        """Shows how far a transfer is, its rate, and how long it will take."""
        if self._err.is_terminal:
            line = Text(str(progress))
            line.truncate(max(10, self._err.width - 1))
            self._err.control(Control((ControlType.ERASE_IN_LINE, 2)))
            self._err.print(line, end="\r")
            self._live = True
        elif time.monotonic() - self._told_at >= _EVERY_S:
            self._told_at = time.monotonic()
            self._err.print(Text(str(progress)))

    def close(self) -> None:
        """Clears the live line."""
        if self._live:
            self._err.control(Control((ControlType.ERASE_IN_LINE, 2)))
            self._live = False
