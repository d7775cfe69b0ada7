"""Observes other processes on our CPUs while this one sleeps."""

import os
import time
from pathlib import Path

import attrs
import psutil

from comparative_benchmark.machine import conditions

OBSERVED_S = 1.0
# Share of one CPU; see `conditions` for why 5 %.
_BUSY_LIMIT = 0.05


@attrs.frozen(kw_only=True)
class Observed:
    """CPU use of other processes during a second in which this process slept.

    Attributes:
      busiest: pid, name and share of one CPU of the busiest processes, also of those elsewhere.
    """

    cpus: tuple[int, ...] = ()
    conditions: conditions.Conditions
    busiest: tuple[tuple[int, str, float], ...]

    @property
    def rows(self) -> list[str]:
        """The busiest processes for a person, e.g. `cc1plus (pid 42) 98% of a CPU`."""
        return [f"{name} (pid {pid}) {used:.0%} of a CPU" for pid, name, used in self.busiest]


def observe(root: Path = conditions.ROOT, seconds: float = OBSERVED_S) -> Observed:
    """Sleeps, and returns what others did meanwhile."""
    earlier, before = _cpu_times(), conditions.take(root)
    time.sleep(seconds)
    after, later = conditions.take(root), _cpu_times()
    seconds = (after.time_ns - before.time_ns) / 1e9
    used = [
        (pid, name, (total - earlier.get(pid, ("", 0.0))[1]) / seconds)
        for pid, (name, total) in later.items()
        if pid != os.getpid()
    ]
    used.sort(key=lambda row: -row[2])
    return Observed(
        # No thread of ours works: all CPUs are to be free.
        conditions=conditions.between(
            before,
            after,
            own_cpu_ms=(after.cpu_ns - before.cpu_ns) / 1e6,
            wall_ms=seconds * 1e3,
            threads=len(before.cpus),
        ),
        cpus=tuple(sorted(before.cpus)),
        busiest=tuple(row for row in used[:3] if row[2] > _BUSY_LIMIT),
    )


def _cpu_times() -> dict[int, tuple[str, float]]:
    """Returns name and CPU seconds of each process that can be seen."""
    found = {}
    for process in psutil.process_iter(["name", "cpu_times"]):
        times = process.info["cpu_times"]
        if times is not None:
            found[process.pid] = (process.info["name"] or "?", times.user + times.system)
    return found
