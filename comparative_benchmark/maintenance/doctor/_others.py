"""Checks of other programs on our CPUs."""

import os
import shutil
from collections.abc import Sequence

from comparative_benchmark.analysis.machine.other_processes import OBSERVED_S, Observed
from comparative_benchmark.maintenance.doctor.system import Finding, Status, System

# An idle machine has about a tenth of this load.
_LOAD_LIMIT = 0.5
_STEAL_SHARE_LIMIT = 0.01


def load(system: System) -> Finding:
    """Checks the load average, which includes this command."""
    text = system.read("/proc/loadavg")
    one = float(text.split()[0]) if text else None
    high = one is not None and one > _LOAD_LIMIT
    return Finding(
        name="load",
        status="unknown" if one is None else "warning" if high else "ok",
        value="unavailable"
        if one is None
        else f"{one:.2f} in the last minute, {len(system.cpus)} CPUs",
        cost="runnable tasks compete for CPUs, caches and memory bandwidth: latencies vary more",
        fix="wait a minute; if the load stays high, see `other processes`" if high else "",
        verify="cat /proc/loadavg",
    )


def foreign_processes(observed: Observed) -> Finding:
    """Checks which other processes were busy during the observed second."""
    share = observed.conditions.foreign_cpu_share
    rows = observed.rows
    taken = (
        "unavailable"
        if share is None
        else f"other processes used {share:.0%} of our CPUs' time during {OBSERVED_S:.0f} s"
    )
    status: Status = "unknown" if share is None else "ok"
    if observed.conditions.contended:
        status = "problem"
    elif rows:  # on other CPUs
        status = "warning"
    # Process 1 is the ancestor of all others, and the kernel does not allow stopping it.
    pids = " ".join(str(pid) for pid, _, _ in observed.busiest if pid != 1)
    top = "top -b -d 1 -n 2 -w 120 | grep -A 5 'PID' | tail -n 6"
    ps = "ps -eo pid,pcpu,comm --sort=-pcpu | head -n 6"
    return Finding(
        name="other processes",
        status=status,
        value="; ".join([taken, *rows]),
        cost="with a busy process on one of our CPUs, sequential A/A ratios varied by 11-13 % "
        "instead of 2 %",
        fix=f"kill -STOP {pids}; cbs run ...; kill -CONT {pids}  # if they are yours"
        if pids
        else "",
        verify=top if shutil.which("top") else ps,
    )


def steal(observed: Observed) -> Finding:
    """Checks the CPU time given to other guests by the hypervisor during the observed second."""
    share = observed.conditions.steal_share
    bad = share is not None and share > _STEAL_SHARE_LIMIT
    return Finding(
        name="steal",
        status="unknown" if share is None else "problem" if bad else "ok",
        value="unavailable" if share is None else f"{share:.1%} during {OBSERVED_S:.0f} s",
        cost="stolen time stops a thread in the middle of an iteration; no process list shows it",
        fix="move to a dedicated or less busy host" if bad else "",
        verify=_steal_command(observed.cpus),
    )


def _steal_command(cpus: Sequence[int]) -> str:
    """Returns a command that prints the steal time of these CPUs during a second."""
    every = not cpus or set(cpus) == set(range(os.cpu_count() or 0))
    names = "" if every else f"({'|'.join(map(str, cpus))})"
    # Fields 2 to 9 are user nice system idle iowait irq softirq steal; user includes guest time.
    ticks = (
        f"grep -E '^cpu{names} ' /proc/stat | awk '{{for (i = 2; i <= 9; i++) all += $i; "
        'steal += $9} END {printf "%.0f %.0f\\n", steal, all}\''
    )
    share = '{printf "%.1f%%\\n", ($2 > all) ? 100 * ($1 - steal) / ($2 - all) : 0}'
    return f"({ticks}; sleep 1; {ticks}) | awk 'NR == 1 {{steal = $1; all = $2}} NR == 2 {share}'"
