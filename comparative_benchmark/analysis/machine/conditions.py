"""Disturbances of a block by the machine: two snapshots, and the difference between them.

Linux reports ticks of 10 ms, so each value has an error, and a block that is too short for a
decision gets `None`. `together` adds up blocks: a series of short ones can be judged even if a
single one cannot.
"""

import math
import os
import resource
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import attrs

from comparative_benchmark.analysis.machine import gpu_state
from comparative_benchmark.analysis.machine.gpu_state import Ends, Finding, GpuClocks

ROOT = Path("/")

# Measured in CPUs, because a block ends with its slowest thread: load by others on one CPU delays
# it, however many CPUs are idle. Load for 5 % of the time affects few of the iterations, which a
# median tolerates; an idle Linux system takes 1-3 %, a busy process 50-100 %.
FOREIGN_CPU_LIMIT = 0.05
# Load on the second hyper-thread of a core slows the first by about a third instead of stopping it.
_SIBLING_LIMIT = 2 * FOREIGN_CPU_LIMIT
# A stolen CPU stops a thread just as a foreign process does.
STEAL_CPU_LIMIT = 0.05
# The difference of two counts of whole ticks has a triangular error distribution on (-1, 1) ticks.
_TICK_ERROR = 1 / math.sqrt(6)
# Two standard errors: 95 % of the blocks at the limit are judged right, nearly all away from it.
_ERRORS = 2.0
# Reading a frequency interrupts that CPU, and a mean needs no more.
_SAMPLED_CPUS = 8

_TICK_MS = 1000 / os.sysconf("SC_CLK_TCK")
_N = TypeVar("_N", int, float)


@attrs.frozen
class Ticks:
    """Ticks of one CPU since the system started; waiting for a disk counts as idle."""

    busy: int
    steal: int
    idle: int


@attrs.frozen(kw_only=True)
class Snapshot:
    """Counters at one moment; `None` or empty if the system does not report them.

    Attributes:
      time_ns, cpu_ns: clock, and CPU time of all threads of this process, at that moment.
      cpus: ticks of each CPU of the affinity mask.
      cores: number of cores of these CPUs; None if unknown.
      load1: load average of one minute.
      involuntary_switches: of all threads (`/proc/self/status` has only the first thread's).
      mhz: current frequency of some CPUs of the mask.
      thermal_throttles: how often heat slowed these CPUs and their packages.
      cgroup_throttles, cgroup_throttled_ms: how often and how long a CPU quota of this container,
        or of an enclosing one, stopped CPUs.
      gpus: clocks of the GPUs, if requested, and other users of the GPU in use.
    """

    time_ns: int
    cpu_ns: int
    cpus: Mapping[int, Ticks]
    load1: float | None
    involuntary_switches: int
    mhz: tuple[float, ...]
    thermal_throttles: int | None
    cgroup_throttles: int | None
    cgroup_throttled_ms: float | None
    gpus: tuple[GpuClocks, ...] = ()
    cores: int | None = None


@attrs.frozen(kw_only=True)
class Totals:
    """Sums over one or more blocks, from which `Conditions` is computed.

    Attributes:
      own_cpu_ms, wall_ms: CPU and wall time of the blocks themselves.
      window_ms: time between the snapshots before and after the blocks, slightly longer than
        `wall_ms`.
      capacity_ms, spare_ms: CPU time available in the affinity mask, and the part of it that the
        process's threads cannot use.
      foreign_ms, steal_ms: CPU time used by other processes, and by other virtual machines. May be
        negative because of tick errors.
      error_ms: one standard error of `foreign_ms` and of `steal_ms`.
      throttled_ms: how long a CPU quota stopped CPUs.
      thermal_throttles: how many times heat slowed CPUs down.
      involuntary_switches: involuntary context switches of all threads.
    """

    own_cpu_ms: float
    wall_ms: float
    window_ms: float
    capacity_ms: float
    spare_ms: float
    foreign_ms: float | None
    steal_ms: float | None
    error_ms: float
    throttled_ms: float | None
    thermal_throttles: int | None
    involuntary_switches: int


@attrs.frozen(kw_only=True)
class Conditions:
    """Machine conditions during one or more blocks.

    Attributes:
      cpu_wall_ratio: the process's CPU time divided by wall time; n for n threads that never wait.
      foreign_cpu_share, steal_share: fraction of the CPU time in the affinity mask that was used by
        other processes, or by other virtual machines.
      throttled_ms: how long a CPU quota stopped CPUs.
      mean_mhz, start_mhz, end_mhz: mean frequency of some CPUs in the affinity mask: over start and
        end, at the start, and at the end; None in most virtual machines.
      gpus_at_start, gpus_at_end: clocks of all GPUs, and other users of the GPU in use; empty
        without a GPU.
      contended: whether other processes used more than the limit, or the GPU was slowed down; None
        if the system does not report it, or if clock ticks are too coarse to decide.
      reasons: why the blocks are contended, or why this is unknown.
      totals: sums from which the other values are computed.
    """

    cpu_wall_ratio: float | None
    foreign_cpu_share: float | None
    steal_share: float | None
    throttled_ms: float | None
    load1: float | None
    involuntary_switches: int
    mean_mhz: float | None
    contended: bool | None
    reasons: tuple[str, ...]
    totals: Totals
    start_mhz: float | None = None
    end_mhz: float | None = None
    gpus_at_start: tuple[GpuClocks, ...] = ()
    gpus_at_end: tuple[GpuClocks, ...] = ()


def take(root: Path = ROOT, *, gpu: bool = False) -> Snapshot:
    """Returns the current counters; takes well under 1 ms (`python -m` this module prints it).

    Args:
      root: replaces `/`.
      gpu: whether GPUs are used, so that the driver is asked for their clocks and users.
    """
    mask = frozenset(os.sched_getaffinity(0))
    usage = resource.getrusage(resource.RUSAGE_SELF)
    heat = [_number(path) for path in _files(root, mask, "thermal_throttle/*_throttle_count")]
    throttles, throttled_ms = _cgroup_throttling(root)
    load = _read(root / "proc/loadavg").split()
    # The kernel reports kHz; frequencies come first, because reading them takes longest.
    gpus = gpu_state.read_gpus() or (gpu_state.UNKNOWN,) if gpu else ()
    mhz = tuple(_number(path) / 1e3 for path in _files(root, mask, "cpufreq/scaling_cur_freq"))
    return Snapshot(
        cpus=_ticks(_read(root / "proc/stat"), mask),
        time_ns=time.perf_counter_ns(),
        cpu_ns=time.process_time_ns(),
        load1=float(load[0]) if load else None,
        involuntary_switches=usage.ru_nivcsw,
        mhz=tuple(value for value in mhz if value > 0),
        thermal_throttles=int(sum(heat)) if heat else None,
        cgroup_throttles=throttles,
        cgroup_throttled_ms=throttled_ms,
        gpus=gpus,
        cores=_cores(root, mask),
    )


def between(
    before: Snapshot, after: Snapshot, *, own_cpu_ms: float, wall_ms: float, threads: int
) -> Conditions:
    """Returns the conditions between two snapshots of the measuring process.

    It cannot see load by others on shared caches, on memory bandwidth, and on a hyper-thread whose
    sibling is outside the mask. Children of the process count as others.

    Args:
      before: first snapshot; load by others is judged over the time between the two.
      after: second snapshot.
      own_cpu_ms: CPU time of the block itself.
      wall_ms: wall time of the block itself.
      threads: number of CPUs that the workload can use; others may use the rest of the mask.
    """
    cpus = before.cpus.keys() & after.cpus.keys()
    window_ms = (after.time_ns - before.time_ns) / 1e6
    busy = sum(after.cpus[cpu].busy - before.cpus[cpu].busy for cpu in cpus)
    steal = sum(after.cpus[cpu].steal - before.cpus[cpu].steal for cpu in cpus)
    totals = Totals(
        own_cpu_ms=own_cpu_ms,
        wall_ms=wall_ms,
        window_ms=window_ms,
        capacity_ms=window_ms * len(cpus),
        spare_ms=window_ms * _spare_cpus(len(cpus), before.cores or len(cpus), threads),
        foreign_ms=busy * _TICK_MS - (after.cpu_ns - before.cpu_ns) / 1e6 if cpus else None,
        steal_ms=steal * _TICK_MS if cpus else None,
        error_ms=_TICK_ERROR * _TICK_MS * math.sqrt(len(cpus)),
        throttled_ms=_difference(before.cgroup_throttled_ms, after.cgroup_throttled_ms),
        thermal_throttles=_difference(before.thermal_throttles, after.thermal_throttles),
        involuntary_switches=after.involuntary_switches - before.involuntary_switches,
    )
    return attrs.evolve(
        _judge(
            totals,
            after.load1,
            _mean([*before.mhz, *after.mhz]),
            gpu_state.of_block(Ends(before.gpus, after.gpus)),
        ),
        start_mhz=_mean(before.mhz),
        end_mhz=_mean(after.mhz),
        gpus_at_start=before.gpus,
        gpus_at_end=after.gpus,
    )


def together(blocks: Iterable[Conditions]) -> Conditions | None:
    """Returns the conditions over all blocks; None without blocks.

    The errors of blocks are independent: the total error grows with the square root of the number
    of blocks, the total time with the number. Load and frequency are plain means; clocks at the
    start and the end exist only for single blocks. For a GPU, disturbed blocks are counted: a few
    are tolerated.
    """
    every = list(blocks)
    if not every:
        return None
    rows = [attrs.asdict(block.totals) for block in every]
    sums = {name: _sum([row[name] for row in rows]) for name in rows[0]}
    sums["error_ms"] = math.hypot(*(row["error_ms"] for row in rows))
    return _judge(
        Totals(**sums),
        _mean([block.load1 for block in every]),
        _mean([block.mean_mhz for block in every]),
        gpu_state.of_blocks(Ends(b.gpus_at_start, b.gpus_at_end) for b in every),
    )


def _spare_cpus(cpus: int, cores: int, threads: int) -> float:
    """Returns how many CPUs others may use: all of the idle cores, and little of the busy ones."""
    idle = cpus * max(1 - threads / cores, 0) if cores else 0.0
    return idle + (_SIBLING_LIMIT if 0 < threads < cpus and cpus > cores else 0.0)


@lru_cache(maxsize=8)
def _cores(root: Path, cpus: frozenset[int]) -> int:
    """Returns the number of cores of these CPUs; a CPU of unknown topology counts as one."""
    place = "sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
    return len({_read(root / place.format(cpu)) or cpu for cpu in cpus})


def cgroup_directories(root: Path = ROOT) -> Iterator[Path]:
    """Yields the CPU controller's directory of this process, then the enclosing ones.

    Version 1 has a line `4:cpu,cpuacct:/path`, version 2 a line `0::/path`; a container often sees
    its own directory as the root, and its path not at all.
    """
    mount = root / "sys/fs/cgroup"
    rows = [line.split(":", 2) for line in _read(root / "proc/self/cgroup").splitlines()]
    paths = {controllers: path for _, controllers, path in (row for row in rows if len(row) == 3)}
    hierarchy = next((names for names in paths if "cpu" in names.split(",")), "")
    top = mount / hierarchy if (mount / hierarchy).is_dir() else mount / "cpu"
    inside = Path(paths.get(hierarchy, "/").lstrip("/"))
    for relative in (inside, *inside.parents):
        if (top / relative / "cpu.stat").is_file():
            yield top / relative


def _judge(
    totals: Totals, load1: float | None, mean_mhz: float | None, gpu: Sequence[Finding]
) -> Conditions:
    foreign_ms, steal_ms = totals.foreign_ms, totals.steal_ms
    taken_ms = None if foreign_ms is None else foreign_ms - totals.spare_ms
    findings = [
        _exceeds(taken_ms, FOREIGN_CPU_LIMIT, totals, "other processes"),
        _exceeds(steal_ms, STEAL_CPU_LIMIT, totals, "other virtual machines (steal)"),
        (bool(totals.throttled_ms), f"the CPU quota throttled CPUs for {totals.throttled_ms} ms"),
        (bool(totals.thermal_throttles), f"CPUs throttled by heat: {totals.thermal_throttles}x"),
        *gpu,
    ]
    answers = [answer for answer, _ in findings]
    contended = True if True in answers else None if None in answers else False
    return Conditions(
        cpu_wall_ratio=totals.own_cpu_ms / totals.wall_ms if totals.wall_ms > 0 else None,
        foreign_cpu_share=_share(foreign_ms, totals.capacity_ms),
        steal_share=_share(steal_ms, totals.capacity_ms),
        throttled_ms=totals.throttled_ms,
        load1=load1,
        involuntary_switches=totals.involuntary_switches,
        mean_mhz=mean_mhz,
        contended=contended,
        reasons=tuple(text for answer, text in findings if answer is not False),
        totals=totals,
    )


def _exceeds(
    taken_ms: float | None, limit: float, totals: Totals, who: str
) -> tuple[bool | None, str]:
    """Returns whether more was taken than the limit, or None within the error; and the reason."""
    if taken_ms is None or totals.window_ms <= 0:
        return None, f"CPU use by {who} is unknown: /proc/stat does not report it"
    error_ms, limit_ms = _ERRORS * totals.error_ms, limit * totals.window_ms
    amount = f"{max(taken_ms, 0) / totals.window_ms:.2f} of a CPU (limit {limit})"
    if taken_ms - error_ms > limit_ms:
        return True, f"{who} used {amount}"
    if taken_ms + error_ms <= limit_ms:
        return False, ""
    return None, (
        f"CPU use by {who} is unknown: {amount} in {totals.window_ms:.0f} ms, "
        f"with an error of {error_ms:.0f} ms"
    )


def _ticks(text: str, mask: frozenset[int]) -> dict[int, Ticks]:
    """Returns the ticks of the CPUs of the mask from the text of /proc/stat."""
    ticks = {}
    for line in text.splitlines():
        name, *values = line.split()
        if not name.startswith("cpu"):
            break
        cpu = int(name[3:] or -1)
        if cpu in mask and len(values) >= 8:
            user, nice, system, idle, iowait, irq, softirq, steal = map(int, values[:8])
            ticks[cpu] = Ticks(user + nice + system + irq + softirq, steal, idle + iowait)
    return ticks


def _cgroup_throttling(root: Path) -> tuple[int | None, float | None]:
    """Returns how often and how many ms quotas stopped CPUs, over all groups of the process."""
    times, throttled_ms = [], []
    for directory in cgroup_directories(root):
        fields = dict(line.split()[:2] for line in _read(directory / "cpu.stat").splitlines())
        if "nr_throttled" not in fields:
            continue  # the root of version 2 has no quota
        times.append(int(fields["nr_throttled"]))
        # Version 2 counts microseconds, version 1 nanoseconds.
        version_2 = int(fields.get("throttled_usec", 0)) / 1e3
        throttled_ms.append(version_2 + int(fields.get("throttled_time", 0)) / 1e6)
    return (sum(times), sum(throttled_ms)) if times else (None, None)


@lru_cache(maxsize=8)
def _files(root: Path, cpus: frozenset[int], pattern: str) -> tuple[Path, ...]:
    """Returns matching files of some CPUs; searched once, read at each snapshot."""
    some = sorted(cpus)[:_SAMPLED_CPUS]
    return tuple(
        path
        for cpu in some
        for path in sorted((root / f"sys/devices/system/cpu/cpu{cpu}").glob(pattern))
    )


def _number(path: Path) -> int:
    text = _read(path).strip()
    return int(text) if text.isdigit() else 0


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _share(part: float | None, whole: float) -> float | None:
    return None if part is None or whole <= 0 else min(max(part / whole, 0.0), 1.0)


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _sum(values: Iterable[Any]) -> Any:
    """Returns the sum, or None if a value is missing."""
    every = list(values)
    return None if None in every else sum(every)


def _difference(before: _N | None, after: _N | None) -> _N | None:
    return None if before is None or after is None else after - before


def _print_cost() -> None:
    take()
    costs_us = []
    for _ in range(200):
        started = time.perf_counter_ns()
        take()
        costs_us.append((time.perf_counter_ns() - started) / 1e3)
    costs_us.sort()
    print(f"a snapshot takes {costs_us[100]:.0f} us (median), {costs_us[-1]:.0f} us at most")


if __name__ == "__main__":
    _print_cost()
