"""The checks of the host; each reads one fact, and provides a command that prints the same fact.

Checks do not guess: unavailable facts are `unknown`. `System.root` replaces `/`, so that tests can
use recorded files.
"""

import itertools
import os
import shlex
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil

from comparative_benchmark.analysis.machine import conditions
from comparative_benchmark.analysis.machine.other_processes import OBSERVED_S, Observed, observe
from comparative_benchmark.backends.host_settings import container_free_bytes
from comparative_benchmark.maintenance.doctor._nvidia import nvidia
from comparative_benchmark.maintenance.doctor.system import CPU_DIRECTORY, Finding, Status, System


def virtualisation(system: System) -> Finding:
    """Checks whether this is a virtual machine, a container, or both."""
    flags = (system.read("/proc/cpuinfo") or "").split()
    board = [f"/sys/class/dmi/id/{name}" for name in ("sys_vendor", "product_name")]
    named = " ".join(text for path in board if (text := system.read(path)))
    # Arm's kernels list features without such a flag.
    known = "no hypervisor flag" if "flags" in flags else "unknown"
    machine = "virtual machine" if "hypervisor" in flags else known
    marks = [path for path in ("/.dockerenv", "/run/.containerenv") if system.exists(path)]
    groups = system.read("/proc/1/cgroup") or ""
    marks += [word for word in ("docker", "kubepods", "lxc", "containerd") if word in groups]
    container = f"container ({', '.join(marks)})" if marks else "no container detected"
    return Finding(
        name="virtualisation",
        status="warning" if "hypervisor" in flags else "ok" if "flags" in flags else "unknown",
        value=f"{machine}{f' ({named})' if named else ''}; {container}",
        cost="the host's clock, hyper-threads and other guests are not visible: rely on "
        "interleaved rounds and `steal`, not on absolute times",
        fix="if absolute times matter, measure on bare metal" if "hypervisor" in flags else "",
        verify="grep -o -m 1 -w hypervisor /proc/cpuinfo | head -n 1; "
        f"cat {' '.join(board)} /proc/1/cgroup 2>/dev/null; "
        "ls -d /.dockerenv /run/.containerenv 2>/dev/null || true",
    )


def governor(system: System) -> Finding:
    """Checks the frequency governors of our CPUs."""
    name = "cpufreq/scaling_governor"
    modes = {text for path in system.of_cpus(name) if (text := system.read(path))}
    return Finding(
        name="governor",
        status="unknown" if not modes else "ok" if modes == {"performance"} else "warning",
        value=", ".join(sorted(modes)) or "unavailable (no cpufreq, as in most virtual machines)",
        cost="all governors except `performance` raise the clock only after work has started: "
        "short runs are slower than long ones",
        fix="" if modes <= {"performance"} else "sudo cpupower frequency-set -g performance",
        verify=f"sort -u {system.shell_of_cpus(name)}",
    )


def turbo(system: System) -> Finding:
    """Checks whether the clock may exceed its base frequency."""
    intel, boost = f"{CPU_DIRECTORY}/intel_pstate/no_turbo", f"{CPU_DIRECTORY}/cpufreq/boost"
    path = intel if system.exists(intel) else boost
    text = system.read(path)
    on = None if text not in ("0", "1") else text == ("0" if path == intel else "1")
    known = f"cat {path}  # 1 is {'off' if path == intel else 'on'}"
    return Finding(
        name="turbo",
        status="unknown" if on is None else "warning" if on else "ok",
        value={None: "unavailable", True: "on", False: "off"}[on],
        cost="with turbo, the clock depends on temperature and on the number of busy cores: the "
        "first minutes are faster than the rest",
        fix=f"echo {int(path == intel)} | sudo tee {path}" if on else "",
        verify=f"cat {intel} {boost}" if on is None else known,
    )


def smt(system: System) -> Finding:
    """Checks whether two of our CPUs are threads of one core, as far as this system shows."""
    name = "topology/thread_siblings_list"
    active = system.read(f"{CPU_DIRECTORY}/smt/active")
    cores: dict[str, int] = {}
    for cpu in system.cpus:
        siblings = system.read(f"{CPU_DIRECTORY}/cpu{cpu}/{name}") or str(cpu)
        cores.setdefault(siblings, cpu)
    shared = active == "1" and len(cores) < len(system.cpus)
    value = {None: "unavailable", "0": "off"}.get(active, "on")
    if active == "1":
        value += f" (usable CPUs: {len(system.cpus)}, cores: {len(cores)})"
    elif active and "hypervisor" in (system.read("/proc/cpuinfo") or "").split():
        value += " (for the virtual CPUs; the host's setting is not visible)"
    one_each = ",".join(map(str, sorted(cores.values())))
    return Finding(
        name="SMT",
        status="unknown" if active is None else "warning" if shared else "ok",
        value=value,
        cost="two threads on one core share its execution units: each slows the other by a varying "
        "amount (a hypervisor may hide that CPUs share a core)",
        fix=f"taskset -c {one_each} cbs run ..." if shared else "",
        # Each core is one line, however many of its threads are ours.
        verify=f"cat {CPU_DIRECTORY}/smt/active; sort -u {system.shell_of_cpus(name)}",
    )


def cpu_quota(system: System) -> Finding:
    """Compares the container's CPU quota with the number of usable CPUs."""
    quotas: list[float] = []
    seen: list[str] = []
    for directory in conditions.cgroup_directories(system.root):
        inside = Path("/", directory.relative_to(system.root))
        for quota, told_by in _quota(system, inside):
            seen += told_by
            quotas += [] if quota is None else [quota]
    snapshot = conditions.take(system.root)
    cpus = len(system.cpus)
    smallest = min(quotas, default=None)
    short = smallest is not None and smallest < cpus
    value = "no quota" if smallest is None else f"quota in CPUs: {smallest:.3g}"
    value += f"; usable CPUs: {cpus}"
    if snapshot.cgroup_throttles:
        value += f"; times throttled so far: {snapshot.cgroup_throttles}"
    # The root group of version 2 has no files: it is unlimited.
    known = bool(seen) or system.read("/proc/self/cgroup") is not None
    files = " ".join(map(shlex.quote, seen))
    quota_of = f"grep -H -E 'nr_throttled|^(max|-?[0-9]+)' {files}" if files else ""
    return Finding(
        name="CPU quota",
        status="unknown" if not known else "problem" if short else "ok",
        value=value if known else "unavailable",
        cost="if the quota is below the number of CPUs, all threads stop for the rest of each "
        "period (100 ms by default): latencies become bimodal",
        fix=f"cbs run --threads {max(int(smallest or 1), 1)} ..., or raise the container's limit"
        if short
        else "",
        verify=f"{quota_of or 'cat /proc/self/cgroup'}; grep Cpus_allowed_list /proc/self/status",
    )


def _quota(system: System, directory: Path) -> Iterator[tuple[float | None, list[str]]]:
    """Yields a group's quota in CPUs, None for unlimited, and the files that contain it."""
    stat, version_2 = str(directory / "cpu.stat"), str(directory / "cpu.max")
    version_1, of_period = (str(directory / f"cpu.cfs_{name}_us") for name in ("quota", "period"))
    if maximum := (system.read(version_2) or "").split():
        limit, period = maximum if len(maximum) == 2 else (maximum[0], "100000")
        yield (None if limit == "max" else int(limit) / int(period)), [version_2, stat]
    if text := system.read(version_1):
        period = system.read(of_period) or "100000"
        quota = None if int(text) < 0 else int(text) / int(period)
        yield quota, [version_1, of_period, stat]


def heat(system: System) -> Finding:
    """Checks whether heat has throttled our CPUs since boot, and reports temperatures."""
    name, zones = "thermal_throttle/*_throttle_count", "/sys/class/thermal/thermal_zone*/temp"
    counters = [text for path in system.of_cpus(name) if (text := system.read(path))]
    temperatures = [text for path in system.matching(zones) if (text := system.read(path))]
    count = sum(int(text) for text in counters if text.isdigit())
    degrees = [int(text) / 1e3 for text in temperatures if text.lstrip("-").isdigit()]
    # A package is counted once per CPU, so only changes of the total are meaningful.
    parts = [f"throttle counters total {count} since boot"] if counters else []
    parts += [f"maximum {max(degrees):.0f} degrees C"] if degrees else []
    verify = []
    if counters or not degrees:
        verify.append(f"cat {system.shell_of_cpus(name)} | awk '{{n += $1}} END {{print n}}'")
    if degrees or not counters:
        verify.append(f"sort -n {zones} | tail -n 1")
    return Finding(
        name="heat",
        status="unknown" if not parts else "warning" if count else "ok",
        value="; ".join(parts) or "unavailable (no throttle counters or thermal zones)",
        cost="a hot CPU lowers its clock: later measurements are slower than earlier ones",
        fix="let the CPU cool or turn off turbo, then check whether the counters still increase"
        if count
        else "",
        verify="; ".join(verify),
    )


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
        cost="each sample includes one clock reading and is rounded to the clock's step",
        fix="see `clock source`" if bad else "",
        verify=f"{python} -c 'import time; c = time.perf_counter_ns; "
        't = [c() for _ in range(20000)]; print("step", min(b - a for a, b in zip(t, t[1:]) '
        'if b > a), "ns,", round((t[-1] - t[0]) / 19999), "ns per reading")\'',
    )


def measure_timer(readings: int = 20_000) -> tuple[int, float]:
    """Returns the smallest step and the cost of a reading of `time.perf_counter_ns`, in ns."""
    clock = time.perf_counter_ns
    values = [clock() for _ in range(readings)]
    steps = (later - earlier for earlier, later in itertools.pairwise(values))
    return min(filter(None, steps), default=0), (values[-1] - values[0]) / (readings - 1)


def aslr(system: System) -> Finding:
    """Checks whether addresses differ between processes."""
    path = "/proc/sys/kernel/randomize_va_space"
    level = system.read(path)
    names = {"0": "off", "1": "partial", "2": "full"}
    return Finding(
        name="ASLR",
        status="unknown" if level not in names else "ok" if level == "2" else "warning",
        value=f"{names[level]} ({level})" if level in names else "unavailable",
        cost="without ASLR, all processes have the same memory layout, and a lucky layout looks "
        "like a faster program (Mytkowicz et al. 2009); replicates cannot average over layouts",
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
        "never": "large weights cause more TLB misses than on most machines",
    }
    return Finding(
        name="huge pages",
        status="unknown" if not chosen else "ok" if chosen == "madvise" else "warning",
        value=chosen or "unavailable",
        cost=costs.get(
            chosen, "`always` and `never` change memory speed, `always` at unpredictable times"
        ),
        fix=f"echo madvise | sudo tee {path}" if chosen in costs else "",
        verify=f"grep -o '\\[.*\\]' {path}",
    )


def memory(system: System) -> Finding:
    """Checks the available memory of the machine and of the container (cgroup version 2)."""
    free = _meminfo(system).get("MemAvailable")
    room = container_free_bytes(system.root)
    available = min((size for size in (free, room) if size is not None), default=None)
    low = available is not None and available < _MEMORY_LOW_BYTES
    value = "unavailable" if available is None else f"{available / _GIB:.1f} GiB available"
    verify = "awk '/^MemAvailable/ {printf \"%.1f GiB\\n\", $2 / 2^20}' /proc/meminfo"
    if room is not None:
        value += " (the container's limit)" if available == room else ""
        verify += "; cd /sys/fs/cgroup/$(sed -n 's/^0:://p' /proc/self/cgroup); "
        verify += "cat memory.max memory.current; "
        verify += "grep active_file memory.stat  # bytes; the last two are free"
    return Finding(
        name="memory",
        status="unknown" if available is None else "warning" if low else "ok",
        value=value,
        cost="workers that do not fit in memory are killed or not interleaved",
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


def _meminfo(system: System) -> dict[str, int]:
    """Returns the lines of /proc/meminfo in bytes."""
    sizes = {}
    for line in (system.read("/proc/meminfo") or "").splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        if words and words[0].isdigit():
            sizes[name] = int(words[0]) * (1024 if words[1:] == ["kB"] else 1)
    return sizes


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
        else f"{one:.2f} in the last minute; usable CPUs: {len(system.cpus)}",
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
        else f"other processes used {share:.0%} of the usable CPU time in {OBSERVED_S:.0f} s"
    )
    status: Status = "unknown" if share is None else "ok"
    if observed.conditions.contended:
        status = "problem"
    elif rows:  # on other CPUs
        status = "warning"
    # A stopped ancestor, e.g. the terminal, would stop us too; process 1 cannot be stopped.
    spared = {1, *(parent.pid for parent in psutil.Process().parents())}
    pids = " ".join(str(pid) for pid, _, _ in observed.busiest if pid not in spared)
    top = "top -b -d 1 -n 2 -w 120 | grep -A 5 'PID' | tail -n 6"
    ps = "ps -eo pid,pcpu,comm --sort=-pcpu | head -n 6"
    return Finding(
        name="other processes",
        status=status,
        value="; ".join([taken, *rows]),
        cost="with a busy process on one usable CPU, sequential A/A ratios varied by 11-13 % "
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
        value="unavailable" if share is None else f"{share:.1%} in {OBSERVED_S:.0f} s",
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


def examine(system: System) -> list[Finding]:
    """Returns all findings; takes a little over a second."""
    observed = observe(system.root)
    return [
        virtualisation(system),
        governor(system),
        turbo(system),
        smt(system),
        load(system),
        foreign_processes(observed),
        steal(observed),
        cpu_quota(system),
        heat(system),
        clock_source(system),
        timer(),
        aslr(system),
        huge_pages(system),
        memory(system),
        swap(system),
        disk(system),
        *nvidia(system),
    ]
