"""Progress on a terminal: a status line, and a table of the current race above it."""

import contextlib
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rich.control import Control
from rich.progress_bar import ProgressBar
from rich.segment import ControlType
from rich.table import Table
from rich.text import Text

from comparative_benchmark.engine import session
from comparative_benchmark.engine.trial import Trial
from comparative_benchmark.results.journal import Entry
from comparative_benchmark.results.outcome import ProcessRecord
from comparative_benchmark.results.record import ResultKey, Status
from comparative_benchmark.terminal.screen import Screen
from comparative_benchmark.terminal.tables import digits, style_of

# Interval at which an unchanged line is redrawn in a terminal, or repeated elsewhere.
_REDRAWN_S = 1.0
_SAID_S = 30.0
_BAR_WIDTH = 12


class LiveRace:
    """Competitors of a race with their processes so far, as a table for a terminal.

    Args:
      trials: the trials of the race.
      processes: number of processes planned for each; the race may need more.

    Attributes:
      names: competitors by trial.
    """

    def __init__(self, trials: Sequence[Trial], processes: int) -> None:
        self.names = {trial.key: str(trial.competitor) for trial in trials}
        self._planned = processes
        self._processes: dict[ResultKey, list[ProcessRecord]] = {key: [] for key in self.names}

    @property
    def share(self) -> float:
        """Share of the planned processes that have ended; failed trials count as complete."""
        shares = [self._share(processes) for processes in self._processes.values()]
        return statistics.fmean(shares) if shares else 0.0

    def add(self, entry: Entry) -> None:
        """Adds a process that has ended."""
        self._processes[entry.key].append(entry.process)

    def _share(self, processes: Sequence[ProcessRecord]) -> float:
        failed = any(process.status is not Status.OK for process in processes)
        return 1.0 if failed else min(1.0, len(processes) / self._planned)

    def __rich__(self) -> Table:
        table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
        for _ in range(4):
            table.add_column(no_wrap=True, overflow="ellipsis")
        for key, processes in self._processes.items():
            word = next((p.status.value for p in processes if p.status is not Status.OK), None)
            medians = [statistics.median(p.latencies_ms) for p in processes if p.latencies_ms]
            latency = f"{digits(statistics.median(medians))} ms so far" if medians else ""
            table.add_row(
                Text(self.names[key]),
                ProgressBar(total=1.0, completed=self._share(processes), width=_BAR_WIDTH),
                f"{len(processes)} of {max(self._planned, len(processes))} processes",
                Text(word, style=style_of(word)) if word else latency,
            )
        return table


class StatusScreen(Screen):
    """Standard error with a status line at the end, and a table above it.

    The terminal is updated only while nothing is measured.

    Args:
      clock: monotonic clock in seconds; replaced in tests.
      keywords: keyword arguments of the screen.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, **keywords: Any) -> None:
        super().__init__(**{"stderr": True, "soft_wrap": True, **keywords})
        self._clock = clock
        # Cells of `parity` run in several threads.
        self._guard = threading.RLock()
        self._live = False
        self._shown, self._shown_at = "", -_REDRAWN_S
        self._spoke_at = self._began_at = clock()
        self._what, self._done, self._total, self._done_at_start = "", 0.0, 0, 0
        self._started = 0
        self._counting_since = self._phase_since = clock()
        self._phase = ""
        self._table: LiveRace | None = None
        self._table_height = 0

    def print(self, *objects: Any, **keywords: Any) -> None:
        """Prints a line above the status line."""
        with self._guard:
            self.erase()
            super().print(*objects, **keywords)
            self._spoke_at = self._clock()

    def at(self, what: str, done: int, total: int) -> None:
        """Announces a part of a command.

        Args:
          what: name of the part, e.g. a workload.
          done: number of completed steps.
          total: number of steps, to estimate the remaining time.
        """
        with self._guard:
            if total != self._total:
                self._counting_since, self._done_at_start = self._clock(), done
            self._what, self._done, self._total, self._started = what, done, total, done
        self.beat("", "")

    def advance(self, steps: float) -> None:
        """Updates the table, and counts a number of steps since the current part began."""
        with self._guard:
            self._done = self._started + steps
            self.show_table(self._table)
        self.beat("", "")

    def show_table(self, table: LiveRace | None) -> None:
        """Shows a table above the status line until the next call; None removes it."""
        with self._guard:
            self.erase()
            self._table = table

    def beat(self, whom: str, phase: str) -> None:
        """Shows a worker's activity and its duration."""
        now, key = self._clock(), f"{whom} {phase}"
        with self._guard:
            if key != self._phase:
                self._phase, self._phase_since = key, now
            in_phase = f"{phase} {duration(now - self._phase_since)}" if phase else ""
        total = f"{duration(now - self._began_at)} elapsed"
        if self._table is not None and len(self._table.names) > 1:
            whom = whom.partition(",")[0]  # the table counts the processes
        activity = "  ".join(filter(None, [whom, in_phase, total, self._remaining()]))
        position = Text(self._position())
        if self.is_terminal:
            position.truncate(max(16, self.width - len(activity) - 3), overflow="ellipsis")
        self.show_status("  ".join(filter(None, [position.plain, activity])), key=key)

    def show_status(self, line: str, key: str | None = None) -> None:
        """Shows a line until the next call.

        Args:
          line: the status.
          key: the part of the line that counts as a change; the whole line by default.
        """
        with self._guard:
            now, key = self._clock(), line if key is None else key
            if not self.is_terminal or self.is_dumb_terminal:
                if now - self._spoke_at >= _SAID_S:
                    self.print(Text(line))
            elif key != self._shown or now - self._shown_at >= _REDRAWN_S:
                self._shown, self._shown_at = key, now
                self._draw(line)

    def erase(self) -> None:
        """Removes the status line and the table."""
        with self._guard:
            self._erase_line()
            for _ in range(self._table_height):
                self.control(Control((ControlType.CURSOR_UP, 1), (ControlType.ERASE_IN_LINE, 2)))
            self._table_height = 0

    @contextlib.contextmanager
    def following(self) -> Iterator[None]:
        """Shows the workers' activity during the block."""
        with session.listening(self.beat):
            try:
                yield
            finally:
                self.erase()

    def _erase_line(self) -> None:
        if self._live:
            self.control(Control((ControlType.CARRIAGE_RETURN,), (ControlType.ERASE_IN_LINE, 2)))
            self._live = False

    def _draw(self, line: str) -> None:
        self._erase_line()
        if self._table is not None and not self._table_height:
            height = len(self._table.names)
            # Lines that have scrolled off the screen cannot be erased.
            if 1 < height < self.height - 1:
                super().print(self._table, soft_wrap=False)
                self._table_height = height
        text = Text(line, no_wrap=True, end="")
        # Some terminals start a new line after the last column.
        text.truncate(max(10, self.width - 1), overflow="ellipsis")
        super().print(text, end="")
        self._live = True

    def _position(self) -> str:
        if not self._total:
            return self._what
        return f"[{min(self._started + 1, self._total)}/{self._total}] {self._what}"

    def _remaining(self) -> str:
        """Returns the remaining time at the current rate; empty if it is unknown."""
        behind = self._done - self._done_at_start
        if behind <= 0 or self._done >= self._total:
            return ""
        each_s = (self._clock() - self._counting_since) / behind
        return f"about {duration(each_s * (self._total - self._done))} left"


def duration(seconds: float) -> str:
    """Returns e.g. `7 s`, `12 min` or `3.4 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
