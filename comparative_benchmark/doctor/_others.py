"""Checks of what others do on our CPUs."""

import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

import attrs
import psutil

from comparative_benchmark.doctor.system import Finding, Status, System
from comparative_benchmark.machine import conditions

# One runnable task half of the time: a tenth of that is normal on an idle machine.
_LOAD_LIMIT = 0.5
# Share of one CPU; see `conditions` for why 5 %.
_BUSY_LIMIT = 0.05
_STEAL_SHARE_LIMIT = 0.01
_OBSERVED_S = 1.0


@attrs.frozen(kw_only=True)
class Observed:
    """What others did on our CPUs during a second in which this process slept."""

    cpus: tuple[int, ...] = ()
    conditions: conditions.Conditions
    busiest: tuple[tuple[int, str, float], ...]


def load(system: System) -> Finding:
    """The load average, which this command is part of."""
    text = system.read("/proc/loadavg")
    one = float(text.split()[0]) if text else None
    high = one is not None and one > _LOAD_LIMIT
    return Finding(
        name="load",
        status="unknown" if one is None else "warning" if high else "ok",
        value="not told"
        if one is None
        else f"{one:.2f} in the last minute, {len(system.cpus)} CPUs",
        cost="runnable tasks compete for CPUs, caches and memory bandwidth: latencies spread",
        fix="wait a minute; if it stays, see `other processes`" if high else "",
        verify="cat /proc/loadavg",
    )


def observe(root: Path, seconds: float = _OBSERVED_S) -> Observed:
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


def foreign_processes(observed: Observed) -> Finding:
    """Which processes were busy during the observed second."""
    share = observed.conditions.foreign_cpu_share
    rows = [f"{name} (pid {pid}) {used:.0%} of a CPU" for pid, name, used in observed.busiest]
    taken = (
        "not told"
        if share is None
        else f"others took {share:.0%} of our CPUs' time during {_OBSERVED_S:.0f} s"
    )
    status: Status = "unknown" if share is None else "ok"
    if observed.conditions.contended:
        status = "problem"
    elif rows:  # on CPUs that are not ours
        status = "warning"
    # Process 1 keeps all others: the kernel does not let it be stopped.
    pids = " ".join(str(pid) for pid, _, _ in observed.busiest if pid != 1)
    top = "top -b -d 1 -n 2 -w 120 | grep -A 5 'PID' | tail -n 6"
    ps = "ps -eo pid,pcpu,comm --sort=-pcpu | head -n 6"
    return Finding(
        name="other processes",
        status=status,
        value="; ".join([taken, *rows]),
        cost="a busy process on one of our CPUs made sequential A/A ratios spread by 11-13 % "
        "instead of 2 %",
        fix=f"kill -STOP {pids}; cbs run ...; kill -CONT {pids}  # if they are yours"
        if pids
        else "",
        verify=top if shutil.which("top") else ps,
    )


def steal(observed: Observed) -> Finding:
    """CPU time that the hypervisor gave to others, during the observed second."""
    share = observed.conditions.steal_share
    bad = share is not None and share > _STEAL_SHARE_LIMIT
    return Finding(
        name="steal",
        status="unknown" if share is None else "problem" if bad else "ok",
        value="not told" if share is None else f"{share:.1%} during {_OBSERVED_S:.0f} s",
        cost="stolen time stops a thread in the middle of an iteration; no process list shows it",
        fix="move to a dedicated or less crowded host" if bad else "",
        verify=_steal_command(observed.cpus),
    )


def _steal_command(cpus: Sequence[int]) -> str:
    """Returns the command that prints the steal of these CPUs during a second."""
    every = not cpus or set(cpus) == set(range(os.cpu_count() or 0))
    names = "" if every else f"({'|'.join(map(str, cpus))})"
    # Fields 2 to 9 are user nice system idle iowait irq softirq steal; guest time is in user.
    ticks = (
        f"grep -E '^cpu{names} ' /proc/stat | awk '{{for (i = 2; i <= 9; i++) all += $i; "
        'steal += $9} END {printf "%.0f %.0f\\n", steal, all}\''
    )
    share = '{printf "%.1f%%\\n", ($2 > all) ? 100 * ($1 - steal) / ($2 - all) : 0}'
    return f"({ticks}; sleep 1; {ticks}) | awk 'NR == 1 {{steal = $1; all = $2}} NR == 2 {share}'"


def _cpu_times() -> dict[int, tuple[str, float]]:
    """Returns name and CPU seconds of each process that can be seen."""
    found = {}
    for process in psutil.process_iter(["name", "cpu_times"]):
        times = process.info["cpu_times"]
        if times is not None:
            found[process.pid] = (process.info["name"] or "?", times.user + times.system)
    return found
