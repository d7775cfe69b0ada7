"""What goes on: a status line on a terminal, a line now and then where there is none.

Commands print their lines on a `StatusScreen`; what workers do comes from `runs.pulse`. The line is
drawn only when a worker says something, which none does while it is timed.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from rich.control import Control
from rich.segment import ControlType
from rich.text import Text

from comparative_benchmark.runs import pulse
from comparative_benchmark.terminal.screen import Screen

# How often the same line is drawn on a terminal, and said elsewhere.
_REDRAWN_S = 1.0
_SAID_S = 30.0


class StatusScreen(Screen):
    """Standard error, whose last line says what goes on.

    Args:
      clock: seconds that never go back; another one in tests.
      keywords: of the screen.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, **keywords: Any) -> None:
        super().__init__(**{"stderr": True, "soft_wrap": True, **keywords})
        self._clock = clock
        # Cells of `parity` run in several threads.
        self._guard = threading.RLock()
        self._live = False
        self._shown, self._shown_at = "", -_REDRAWN_S
        self._spoke_at = self._began_at = clock()
        self._what, self._done, self._total, self._done_at_start = "", 0, 0, 0
        self._counting_since = self._phase_since = clock()
        self._phase = ""

    def print(self, *objects: Any, **keywords: Any) -> None:
        """Prints a line above the status line."""
        with self._guard:
            self.erase()
            super().print(*objects, **keywords)
            self._spoke_at = self._clock()

    def at(self, what: str, done: int, total: int) -> None:
        """Says which part of a command begins.

        Args:
          what: it is, e.g. a workload.
          done: how many of the steps are behind us.
          total: of the steps; the estimate of what is left follows from both.
        """
        with self._guard:
            if total != self._total:
                self._counting_since, self._done_at_start = self._clock(), done
            self._what, self._done, self._total = what, done, total
        self.beat("", "")

    def beat(self, whom: str, phase: str) -> None:
        """Shows what a worker does, and for how long; see `pulse`."""
        now, key = self._clock(), f"{whom} {phase}"
        with self._guard:
            if key != self._phase:
                self._phase, self._phase_since = key, now
            in_phase = f"{phase} {_duration(now - self._phase_since)}" if phase else ""
        total = f"{_duration(now - self._began_at)} elapsed"
        parts = [self._position(), whom, in_phase, total, self._left()]
        self.show_status("  ".join(filter(None, parts)), key=key)

    def show_status(self, line: str, key: str | None = None) -> None:
        """Shows a line until the next one.

        Args:
          line: what goes on.
          key: the part of it that is news when it changes; the whole line by default.
        """
        with self._guard:
            now, key = self._clock(), line if key is None else key
            if not self.is_terminal:
                if now - self._spoke_at >= _SAID_S:
                    self.print(Text(line))
            elif key != self._shown or now - self._shown_at >= _REDRAWN_S:
                self._shown, self._shown_at = key, now
                self._draw(line)

    def erase(self) -> None:
        """Takes the status line away."""
        with self._guard:
            if self._live:
                self.control(
                    Control((ControlType.CARRIAGE_RETURN,), (ControlType.ERASE_IN_LINE, 2))
                )
                self._live = False

    @contextlib.contextmanager
    def following(self) -> Iterator[None]:
        """Shows what workers do while the block lasts."""
        with pulse.listening(self.beat):
            try:
                yield
            finally:
                self.erase()

    def _draw(self, line: str) -> None:
        self.erase()
        text = Text(line, no_wrap=True, end="")
        # In the last column some terminals begin a new line.
        text.truncate(max(10, self.width - 1), overflow="ellipsis")
        super().print(text, end="")
        self._live = True

    def _position(self) -> str:
        if not self._total:
            return self._what
        return f"[{min(self._done + 1, self._total)}/{self._total}] {self._what}"

    def _left(self) -> str:
        """Returns how long the rest takes if it goes on as until now; empty if nothing is known."""
        behind = self._done - self._done_at_start
        if behind <= 0 or self._done >= self._total:
            return ""
        each_s = (self._clock() - self._counting_since) / behind
        return f"about {_duration(each_s * (self._total - self._done))} left"


def _duration(seconds: float) -> str:
    """Returns e.g. `7 s`, `12 min` or `3.4 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
