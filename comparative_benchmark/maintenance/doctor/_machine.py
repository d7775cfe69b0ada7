"""Checks of clocks, memory and disk."""

import itertools
import shlex
import shutil
import sys
import time

from comparative_benchmark.maintenance.doctor.system import Finding, System

_GIB = 2**30
# Enough for weights, inputs and compile caches of the larger workloads.
_MEMORY_LOW_BYTES = 4 * _GIB
_DISK_LOW_BYTES, _DISK_OUT_BYTES = 10 * _GIB, _GIB
# Allows measuring a latency of 1 ms to 0.1 %.
_TIMER_LIMIT_NS = 1000
# Readable without a system call, best first.
_FAST_CLOCKS = ("tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter")


def clock_source(system: System) -> Finding:
    """Checks the clock source of the kernel."""
    directory = "/sys/devices/system/clocksource/clocksource0"
    path = f"{directory}/current_clocksource"
    name = system.read(path)
    slow = name is not None and name not in _FAST_CLOCKS
    there = (system.read(f"{directory}/available_clocksource") or "").split()
    better = next((clock for clock in _FAST_CLOCKS if clock in there), None)
    fix = f"echo {better} | sudo tee {path}" if better else "measure on a machine with a TSC clock"
    return Finding(
        name="clock source",
        status="unknown" if name is None else "problem" if slow else "ok",
        value=name or "unavailable",
        cost="clocks other than the CPU's own counter need a system call or a device access for "
        "each reading",
        fix=fix if slow else "",
        verify=f"cat {path}",
    )


def timer() -> Finding:
    """Measures the resolution and cost of the clock used for samples."""
    resolution_ns, cost_ns = measure_timer()
    bad = max(resolution_ns, cost_ns) > _TIMER_LIMIT_NS
    python = shlex.quote(sys.executable or "python3")
    return Finding(
        name="timer",
        status="problem" if bad else "ok",
        value=f"step {resolution_ns} ns, {cost_ns:.0f} ns per reading",
        cost="each sample includes one reading of the clock and is rounded to its step",
        fix="see `clock source`" if bad else "",
        verify=f"{python} -c 'import time; c = time.perf_counter_ns; "
        't = [c() for _ in range(20000)]; print("step", min(b - a for a, b in zip(t, t[1:]) '
        'if b > a), "ns,", round((t[-1] - t[0]) / 19999), "ns per reading")\'',
    )


def measure_timer(readings: int = 20_000) -> tuple[int, float]:
    """Returns the smallest step and the cost of a reading of `time.perf_counter_ns`, in ns."""
    clock = time.perf_counter_ns
    values = [clock() for _ in range(readings)]
    steps = [later - earlier for earlier, later in itertools.pairwise(values)]
    return min((step for step in steps if step > 0), default=0), (values[-1] - values[0]) / (
        readings - 1
    )


def aslr(system: System) -> Finding:
    """Checks whether addresses differ between processes."""
    path = "/proc/sys/kernel/randomize_va_space"
    level = system.read(path)
    names = {"0": "off", "1": "partial", "2": "full"}
    return Finding(
        name="ASLR",
        status="unknown" if level not in names else "ok" if level == "2" else "warning",
        value=f"{names[level]} ({level})" if level in names else "unavailable",
        cost="without it all processes have the same memory layout, and a lucky layout looks like "
        "a faster program (Mytkowicz et al. 2009); replicates average only over different layouts",
        fix="sudo sysctl kernel.randomize_va_space=2" if level in ("0", "1") else "",
        verify=f"cat {path}",
    )


def huge_pages(system: System) -> Finding:
    """Checks transparent huge pages."""
    path = "/sys/kernel/mm/transparent_hugepage/enabled"
    text = system.read(path) or ""
    chosen = text.partition("[")[2].partition("]")[0]
    costs = {
        "always": "the kernel merges pages in the background, at unpredictable times",
        "never": "large weights miss the TLB more often than on most machines",
    }
    return Finding(
        name="huge pages",
        status="unknown" if not chosen else "ok" if chosen == "madvise" else "warning",
        value=chosen or "unavailable",
        cost=costs.get(
            chosen,
            "`always` and `never` change memory speed, `always` at unpredictable times",
        ),
        fix=f"echo madvise | sudo tee {path}" if chosen in costs else "",
        verify=f"grep -o '\\[.*\\]' {path}",
    )


def memory(system: System) -> Finding:
    """Checks the available memory of the machine and of the container (cgroup version 2)."""
    free = _meminfo(system).get("MemAvailable")
    limit, used = (system.read(f"/sys/fs/cgroup/memory.{name}") for name in ("max", "current"))
    room = int(limit) - int(used) if limit and limit.isdigit() and used else None
    available = min((size for size in (free, room) if size is not None), default=None)
    low = available is not None and available < _MEMORY_LOW_BYTES
    value = "unavailable" if available is None else f"{available / _GIB:.1f} GiB available"
    verify = _gib_of("MemAvailable")
    if room is not None:
        value += " (the container's limit)" if available == room else ""
        verify += "; cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory.current  # bytes"
    return Finding(
        name="memory",
        status="unknown" if available is None else "warning" if low else "ok",
        value=value,
        cost="workers that do not fit run one after another, not interleaved, or are killed",
        fix="stop other processes, or choose smaller workloads" if low else "",
        verify=verify,
    )


def swap(system: System) -> Finding:
    """Checks whether memory has been swapped out."""
    info = _meminfo(system)
    total, free = info.get("SwapTotal"), info.get("SwapFree")
    used = None if total is None or free is None else total - free
    return Finding(
        name="swap",
        status="unknown" if used is None else "warning" if used else "ok",
        value="unavailable"
        if used is None
        else f"{used / _GIB:.1f} GiB of {(total or 0) / _GIB:.1f} GiB in use",
        cost="reading a page back from disk stops a thread in the middle of an iteration",
        fix="sudo swapoff -a && sudo swapon -a" if used else "",
        verify="awk '/^SwapTotal/ {all = $2} /^SwapFree/ "
        '{printf "%.1f GiB of %.1f GiB\\n", (all - $2) / 2^20, all / 2^20}\' /proc/meminfo',
    )


def disk(system: System) -> Finding:
    """Checks the free disk space for artifacts."""
    path = system.artifact_root.absolute()
    while not path.exists():
        path = path.parent
    free = shutil.disk_usage(path).free
    low = free < _DISK_LOW_BYTES
    return Finding(
        name="disk",
        status="problem" if free < _DISK_OUT_BYTES else "warning" if low else "ok",
        value=f"{free / _GIB:.0f} GiB free at {path}",
        cost="checkpoints, artifacts and compile caches are stored there; a full disk ends the run",
        fix="export CBS_ROOT_DIR=...  # on a larger disk" if low else "",
        # `df -h` would round up.
        verify=f"df -Pk {shlex.quote(str(path))} | "
        "awk 'NR == 2 {printf \"%.0f GiB\\n\", $4 / 2^20}'",
    )


def _gib_of(field: str) -> str:
    """Returns a command that prints a line of /proc/meminfo in GiB."""
    return f"awk '/^{field}/ {{printf \"%.1f GiB\\n\", $2 / 2^20}}' /proc/meminfo"


def _meminfo(system: System) -> dict[str, int]:
    """Returns the lines of /proc/meminfo in bytes."""
    found = {}
    for line in (system.read("/proc/meminfo") or "").splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        if words and words[0].isdigit():
            found[name] = int(words[0]) * (1024 if words[1:] == ["kB"] else 1)
    return found
