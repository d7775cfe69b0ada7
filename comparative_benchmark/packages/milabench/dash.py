"""What runs now: rates, losses, progress and devices, a line for each process."""

import sys
import time
from types import TracebackType
from typing import Self

from rich.live import Live
from rich.table import Table

from comparative_benchmark.packages.milabench.observed import Observed
from comparative_benchmark.terminal.screen import Screen
from openxla.benchmark.text import printable

# Each drawing takes a millisecond from the CPUs that are measured.
_INTERVAL_S = 0.5
_LOSSES = 8
_WIDTH = 140


class Dash:
    """A live table on a terminal; lines where there is none."""

    def __init__(self, kind: str, name: str) -> None:
        self._long = kind == "long"
        self._shown = kind != "no"
        self._name = name
        self._console = Screen(stderr=True)
        if not self._console.is_terminal:
            self._console = Screen(stderr=True, width=_WIDTH)
        self._processes: dict[str, Observed] = {}
        self._drawn = 0.0
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if self._shown and self._console.is_terminal:
            self._live = Live(console=self._console, auto_refresh=False)
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._shown and self._processes:
            self._draw()
        if self._live is not None:
            self._live.stop()

    def say(self, text: str) -> None:
        """Shows a message of a benchmark."""
        print(printable(text), file=sys.stderr)

    def listen(self, tag: str, observed: Observed) -> None:
        """Hears of events of a process."""
        self._processes[tag] = observed
        if self._shown and time.monotonic() - self._drawn >= _INTERVAL_S:
            self._draw()

    def _draw(self) -> None:
        self._drawn = time.monotonic()
        if self._live is not None:
            self._live.update(self._table(), refresh=True)
            return
        for tag, observed in self._processes.items():
            print(f"{tag}: {', '.join(_cells(observed, long=self._long))}", file=sys.stderr)

    def _table(self) -> Table:
        table = Table("process", "rate", "loss", "progress", "device", box=None)
        for tag, observed in self._processes.items():
            table.add_row(tag, *_cells(observed, long=self._long))
        return table


def _cells(observed: Observed, *, long: bool) -> list[str]:
    rates = observed.measured
    rate = f"{rates[-1]:.5g} {observed.measured_units}" if rates else "no rate yet"
    losses = observed.losses[-_LOSSES if long else -1 :]
    loss = " ".join(f"{value:.4g}" for value in losses) or "-"
    progress = "-"
    if observed.progress is not None:
        done, total = observed.progress
        progress = f"{done}/{total or '?'}"
    device = "-"
    if observed.device_memory_mb is not None:
        use = observed.device_use
        device = f"{observed.device_memory_mb:.0f} MB"
        device += "" if use is None else f" {use:.0%}"
    return [rate, f"loss {loss}", f"progress {progress}", f"device {device}"]
