"""CPU time that others took while scripts ran, as Linux counts it."""

import os
import time
from pathlib import Path

from comparative_benchmark.backends import cpus

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


class ForeignCpu:
    """Counts from its making on."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._cpus = cpus.usable_cpus()
        self._started = (time.monotonic(), self._busy_s())

    def share(self, own_s: float) -> float | None:
        """Returns which share of the CPUs' time others took; None where the system does not tell.

        Args:
          own_s: CPU time of what was measured.
        """
        before, now = self._started, (time.monotonic(), self._busy_s())
        if before[1] is None or now[1] is None or now[0] <= before[0]:
            return None
        foreign_s = now[1] - before[1] - own_s
        return max(0.0, foreign_s / (now[0] - before[0]) / len(self._cpus))

    def _busy_s(self) -> float | None:
        """Returns the time in which our CPUs were busy or stolen."""
        try:
            text = (self._root / "proc" / "stat").read_text(encoding="ascii")
        except OSError:
            return None
        wanted = {f"cpu{number}" for number in self._cpus}
        total = 0
        for line in text.splitlines():
            name, *ticks = line.split()
            if name in wanted:
                user, nice, system, _, _, irq, softirq, steal = map(int, ticks[:8])
                total += user + nice + system + irq + softirq + steal
        return total * _TICK_S
