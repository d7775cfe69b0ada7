"""The checks: each reads one fact from the system, and prints a command that reads it again.

A check never guesses: what the system does not tell is `unknown`. `System.root` stands for `/`, so
that a test can put recorded files in its place.
"""

import csv
import itertools
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

import attrs
import psutil

from comparative_benchmark.harness import conditions

Status = Literal["ok", "warning", "problem", "unknown"]

_GIB = 2**30
# One runnable task half of the time: a tenth of that is normal on an idle machine.
_LOAD_LIMIT = 0.5
# Of one CPU; see `conditions` for why 5 %.
_BUSY_LIMIT = 0.05
_STEAL_SHARE_LIMIT = 0.01
# Weights, inputs and compile caches of the larger workloads.
_MEMORY_LOW_BYTES = 4 * _GIB
_DISK_LOW_BYTES, _DISK_OUT_BYTES = 10 * _GIB, _GIB
# A latency of 1 ms is then read to 0.1 %.
_TIMER_LIMIT_NS = 1000
_OBSERVED_S = 1.0
_NVIDIA_TIMEOUT_S = 20

_GPU_FIELDS = (
    "index",
    "name",
    "persistence_mode",
    "clocks.sm",
    "clocks.max.sm",
    "temperature.gpu",
    "utilization.gpu",
)
_GPU_PROCESS_FIELDS = ("gpu_uuid", "pid", "process_name", "used_memory")
# nvmlClocksEventReasons of NVML; newer drivers call the field clocks_event_reasons.
_REASON_FIELDS = ("clocks_event_reasons.active", "clocks_throttle_reasons.active")
_GPU_REASONS = {
    0x1: "idle",
    0x2: "application clocks",
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "heat (software)",
    0x40: "heat (hardware)",
    0x80: "power brake",
    0x100: "display clocks",
}
_HARMLESS_REASONS = 0x1 | 0x2
_HARMFUL_REASONS = 0x4 | 0x8 | 0x20 | 0x40 | 0x80

Runner = Callable[[Sequence[str]], str | None]


def _output(command: Sequence[str]) -> str | None:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_NVIDIA_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout if done.returncode == 0 else None


@attrs.frozen(kw_only=True)
class Finding:
    """One fact about this machine.

    Attributes:
      name: what was looked at.
      status: what it means for a measurement; `unknown` where the system does not tell.
      value: what was read.
      cost: what it costs a measurement.
      fix: what to type; empty where there is nothing to do.
      verify: a shell command that prints the same fact.
    """

    name: str
    status: Status
    value: str
    cost: str
    fix: str
    verify: str


@attrs.frozen(kw_only=True)
class Observed:
    """What others did on our CPUs during a second in which this process slept."""

    conditions: conditions.Conditions
    busiest: tuple[tuple[int, str, float], ...]


@attrs.frozen(kw_only=True)
class System:
    """The machine as the checks see it.

    Attributes:
      root: stands for `/`.
      artifact_root: where the suite writes.
      cpus: CPUs that this process may run on.
      run: runs a command; its output, or None where there is no such command or it failed.
    """

    root: Path = Path("/")
    artifact_root: Path
    cpus: tuple[int, ...] = attrs.field(factory=lambda: tuple(sorted(os.sched_getaffinity(0))))
    run: Runner = _output

    def read(self, path: str) -> str | None:
        """Returns the text of a file, without space around it; None where it can not be read."""
        try:
            return (
                (self.root / path.lstrip("/")).read_text(encoding="utf-8", errors="replace").strip()
            )
        except OSError:
            return None

    def exists(self, path: str) -> bool:
        """Returns whether there is such a file."""
        return (self.root / path.lstrip("/")).exists()


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


def virtualisation(system: System) -> Finding:
    """Whether this is a virtual machine, a container, or both."""
    flags = (system.read("/proc/cpuinfo") or "").split()
    vendor, product = (
        system.read(f"/sys/class/dmi/id/{name}") for name in ("sys_vendor", "product_name")
    )
    named = " ".join(text for text in (vendor, product) if text)
    machine = "virtual machine" if "hypervisor" in flags else "no hypervisor flag"
    marks = [path for path in ("/.dockerenv", "/run/.containerenv") if system.exists(path)]
    groups = system.read("/proc/1/cgroup") or ""
    marks += [word for word in ("docker", "kubepods", "lxc", "containerd") if word in groups]
    container = f"container ({', '.join(marks)})" if marks else "no sign of a container"
    return Finding(
        name="virtualisation",
        status="unknown" if not flags else "warning" if "hypervisor" in flags else "ok",
        value=f"{machine}{f' ({named})' if named else ''}; {container}",
        cost="the host's clock, hyper-threads and neighbours are out of sight: rely on interleaved "
        "rounds and steal, not on absolute times",
        fix="",
        verify="grep -o -m1 -w hypervisor /proc/cpuinfo | sort -u; ls -d /.dockerenv "
        "/run/.containerenv 2>&1; cat /proc/1/cgroup",
    )


def governor(system: System) -> Finding:
    """The frequency governors of our CPUs."""
    name = "scaling_governor"
    found = {
        text
        for cpu in system.cpus
        if (text := system.read(f"/sys/devices/system/cpu/cpu{cpu}/cpufreq/{name}"))
    }
    return Finding(
        name="governor",
        status="unknown" if not found else "ok" if found == {"performance"} else "warning",
        value=", ".join(sorted(found)) or "not told (no cpufreq: usual in a virtual machine)",
        cost="any other governor than `performance` raises the clock only after work has begun: "
        "short runs are slower than long ones",
        fix="" if found <= {"performance"} else "sudo cpupower frequency-set -g performance",
        verify=f"cat /sys/devices/system/cpu/cpu{system.cpus[0]}/cpufreq/{name}",
    )


def turbo(system: System) -> Finding:
    """Whether the clock may rise above its base."""
    intel, boost = (
        "/sys/devices/system/cpu/intel_pstate/no_turbo",
        "/sys/devices/system/cpu/cpufreq/boost",
    )
    path = intel if system.exists(intel) else boost
    text = system.read(path)
    on = None if text not in ("0", "1") else text == ("0" if path == intel else "1")
    return Finding(
        name="turbo",
        status="unknown" if on is None else "warning" if on else "ok",
        value={None: "not told", True: "on", False: "off"}[on],
        cost="with turbo the clock depends on heat and on how many cores are busy, so that the "
        "first minutes are faster than the rest",
        fix=f"echo {int(path == intel)} | sudo tee {path}" if on else "",
        verify=f"cat {path}",
    )


def smt(system: System) -> Finding:
    """Whether two of our CPUs are threads of one core."""
    active = system.read("/sys/devices/system/cpu/smt/active")
    base = "/sys/devices/system/cpu"
    cores: dict[str, int] = {}
    for cpu in system.cpus:
        siblings = system.read(f"{base}/cpu{cpu}/topology/thread_siblings_list") or str(cpu)
        cores.setdefault(siblings, cpu)
    shared = active == "1" and len(cores) < len(system.cpus)
    value = {None: "not told", "0": "off"}.get(active, "on")
    if active == "1":
        value += f": {len(system.cpus)} CPUs of the mask are {len(cores)} cores"
    one_each = ",".join(map(str, sorted(cores.values())))
    return Finding(
        name="SMT",
        status="unknown" if active is None else "warning" if shared else "ok",
        value=value,
        cost="two threads on one core share its units: each is slower by an amount that depends on "
        "the other (a hypervisor may do so unseen)",
        fix=f"taskset -c {one_each} cbs run ..." if shared else "",
        verify=f"cat {base}/smt/active {base}/cpu*/topology/thread_siblings_list",
    )


def load(system: System) -> Finding:
    """The load average, which this command is part of."""
    text = system.read("/proc/loadavg")
    one = float(text.split()[0]) if text else None
    return Finding(
        name="load",
        status="unknown" if one is None else "warning" if one > _LOAD_LIMIT else "ok",
        value="not told"
        if one is None
        else f"{one:.2f} in the last minute, {len(system.cpus)} CPUs",
        cost="runnable tasks compete for CPUs, caches and memory bandwidth: latencies spread",
        fix=""
        if one is None or one <= _LOAD_LIMIT
        else "stop the processes of the next line, wait a minute",
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
        busiest=tuple(row for row in used[:3] if row[2] > _BUSY_LIMIT),
    )


def foreign_processes(observed: Observed) -> Finding:
    """Which processes were busy during the observed second."""
    share = observed.conditions.foreign_cpu_share
    rows = [f"{name} (pid {pid}) {used:.0%} of a CPU" for pid, name, used in observed.busiest]
    taken = (
        "not told" if share is None else f"{share:.0%} of our CPUs busy during {_OBSERVED_S:.0f} s"
    )
    status: Status = "unknown" if share is None else "ok"
    if observed.conditions.contended:
        status = "problem"
    elif rows:  # on CPUs that are not ours
        status = "warning"
    pids = " ".join(str(pid) for pid, _, _ in observed.busiest)
    top = "top -b -d 1 -n 2 -w 120 | grep -A 5 'PID' | tail -n 6"
    ps = "ps -eo pid,pcpu,comm --sort=-pcpu | head -n 6"
    return Finding(
        name="other processes",
        status=status,
        value="; ".join([taken, *rows]),
        cost="a busy process on one of our CPUs made sequential A/A ratios spread by 11-13 % "
        "instead of 2 %",
        fix=f"kill -STOP {pids}; cbs run ...; kill -CONT {pids}  # if they are yours"
        if rows
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
        verify="head -n 1 /proc/stat; sleep 1; head -n 1 /proc/stat  # field 9 is steal, in ticks",
    )


def cpu_quota(system: System) -> Finding:
    """The CPU quota of the container against the CPUs of the mask."""
    quotas: list[tuple[float, Path]] = []
    seen: list[str] = []
    for directory in conditions.cgroup_directories(system.root):
        for quota, path in _quota(directory):
            seen.append(_absolute(system, path))
            if quota is not None:
                quotas.append((quota, path))
    snapshot = conditions.take(system.root)
    cpus = len(system.cpus)
    smallest = min((quota for quota, _ in quotas), default=None)
    short = smallest is not None and smallest < cpus
    if smallest is None:
        value = f"no quota; {cpus} CPUs in the mask"
    else:
        value = f"quota of {smallest:.3g} CPUs; {cpus} CPUs in the mask"
    if snapshot.cgroup_throttles:
        value += f"; stopped {snapshot.cgroup_throttles} times so far"
    # The root group of version 2 has no files of its own: nothing limits it.
    known = bool(seen) or system.read("/proc/self/cgroup") is not None
    return Finding(
        name="CPU quota",
        status="unknown" if not known else "problem" if short else "ok",
        value=value if known else "not told",
        cost="a quota below the number of CPUs stops all threads for the rest of each period "
        "(100 ms): latencies have two modes",
        fix=f"cbs run --threads {max(int(smallest or 1), 1)} ..., or raise the container's limit"
        if short
        else "",
        verify=f"cat {' '.join(map(shlex.quote, seen or ['/proc/self/cgroup']))}; "
        "grep Cpus_allowed_list /proc/self/status",
    )


def heat(system: System) -> Finding:
    """Whether heat has slowed our CPUs since the start, and how hot it is."""
    count = conditions.take(system.root).thermal_throttles
    zones = sorted((system.root / "sys/class/thermal").glob("thermal_zone*/temp"))
    degrees = [int(text) / 1e3 for path in zones if (text := _text(path)).lstrip("-").isdigit()]
    parts = [] if count is None else [f"slowed {count} times since the start"]
    parts += [f"{max(degrees):.0f} degrees C at most"] if degrees else []
    files = "/sys/devices/system/cpu/cpu*/thermal_throttle/*_throttle_count"
    return Finding(
        name="heat",
        status="unknown" if not parts else "warning" if count else "ok",
        value="; ".join(parts) or "not told (no throttle counters, no thermal zones)",
        cost="a hot CPU lowers its clock: later measurements are slower than earlier ones",
        fix="let it cool, or turn turbo off, and look at the counters again" if count else "",
        verify=f"cat {files if count is not None else '/sys/class/thermal/thermal_zone*/temp'}",
    )


def clock_source(system: System) -> Finding:
    """What the kernel's clock reads."""
    path = "/sys/devices/system/clocksource/clocksource0/current_clocksource"
    name = system.read(path)
    fast = ("tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter")
    slow = name is not None and name not in fast
    return Finding(
        name="clock source",
        status="unknown" if name is None else "problem" if slow else "ok",
        value=name or "not told",
        cost="clocks other than the CPU's own counter need a system call or an access to a device "
        "for each reading",
        fix=f"echo tsc | sudo tee {path}" if slow else "",
        verify=f"cat {path}",
    )


def timer() -> Finding:
    """Resolution and cost of the clock that samples are taken with, as measured now."""
    resolution_ns, cost_ns = measure_timer()
    bad = max(resolution_ns, cost_ns) > _TIMER_LIMIT_NS
    python = shlex.quote(sys.executable or "python3")
    return Finding(
        name="timer",
        status="problem" if bad else "ok",
        value=f"step {resolution_ns} ns, {cost_ns:.0f} ns for each reading",
        cost="each sample holds one reading of the clock and is rounded to its step",
        fix="see the clock source" if bad else "",
        verify=f"{python} -m timeit -n 100000 -r 5 -s 'import time' 'time.perf_counter_ns()'",
    )


def measure_timer(readings: int = 20_000) -> tuple[int, float]:
    """Returns the smallest step of `time.perf_counter_ns`, and what a reading costs, in ns."""
    clock = time.perf_counter_ns
    values = [clock() for _ in range(readings)]
    steps = [later - earlier for earlier, later in itertools.pairwise(values)]
    return min((step for step in steps if step > 0), default=0), (values[-1] - values[0]) / (
        readings - 1
    )


def aslr(system: System) -> Finding:
    """Whether addresses differ from process to process."""
    path = "/proc/sys/kernel/randomize_va_space"
    level = system.read(path)
    names = {"0": "off", "1": "partial", "2": "full"}
    return Finding(
        name="ASLR",
        status="unknown" if level not in names else "ok" if level == "2" else "warning",
        value=f"{names[level]} ({level})" if level in names else "not told",
        cost="without it every process has the same layout, and a lucky one looks like a faster "
        "program (Mytkowicz et al. 2009); replicates average over layouts only when they differ",
        fix="sudo sysctl kernel.randomize_va_space=2" if level in ("0", "1") else "",
        verify=f"cat {path}",
    )


def huge_pages(system: System) -> Finding:
    """Transparent huge pages."""
    path = "/sys/kernel/mm/transparent_hugepage/enabled"
    text = system.read(path) or ""
    chosen = text.partition("[")[2].partition("]")[0]
    costs = {
        "always": "the kernel merges pages in the background, at moments of its own choosing",
        "never": "large weights miss the TLB more often than on most machines",
    }
    return Finding(
        name="huge pages",
        status="unknown" if not chosen else "ok" if chosen == "madvise" else "warning",
        value=chosen or "not told",
        cost=costs.get(
            chosen,
            "`always` and `never` change memory speed, the first at moments of "
            "the kernel's choosing",
        ),
        fix=f"echo madvise | sudo tee {path}" if chosen in costs else "",
        verify=f"cat {path}",
    )


def memory(system: System) -> Finding:
    """Memory that is available, container included."""
    available = _meminfo(system).get("MemAvailable")
    low = available is not None and available < _MEMORY_LOW_BYTES
    return Finding(
        name="memory",
        status="unknown" if available is None else "warning" if low else "ok",
        value="not told" if available is None else f"{available / _GIB:.1f} GiB available",
        cost="workers that do not fit run one after the other, not interleaved, or are killed",
        fix="stop other processes, or take smaller workloads" if low else "",
        verify="grep MemAvailable /proc/meminfo",
    )


def swap(system: System) -> Finding:
    """Whether memory has been swapped out."""
    info = _meminfo(system)
    total, free = info.get("SwapTotal"), info.get("SwapFree")
    used = None if total is None or free is None else total - free
    return Finding(
        name="swap",
        status="unknown" if used is None else "warning" if used else "ok",
        value="not told"
        if used is None
        else f"{used / _GIB:.1f} GiB of {(total or 0) / _GIB:.1f} GiB in use",
        cost="a page that comes back from the disk stops a thread in the middle of an iteration",
        fix="sudo swapoff -a && sudo swapon -a" if used else "",
        verify="grep Swap /proc/meminfo",
    )


def disk(system: System) -> Finding:
    """Free space where artifacts are kept."""
    path = system.artifact_root.absolute()
    while not path.exists():
        path = path.parent
    free = shutil.disk_usage(path).free
    low = free < _DISK_LOW_BYTES
    return Finding(
        name="disk",
        status="problem" if free < _DISK_OUT_BYTES else "warning" if low else "ok",
        value=f"{free / _GIB:.0f} GiB free at {path}",
        cost="checkpoints, artifacts and compile caches go there; a full disk ends the run",
        fix="set CBS_ROOT_DIR to a larger disk" if low else "",
        verify=f"df -h {shlex.quote(str(path))}",
    )


def nvidia(system: System) -> Iterator[Finding]:
    """State of NVIDIA GPUs, as nvidia-smi tells it."""
    command, rows = _gpus(system)
    if not rows:
        devices = system.exists("/dev/nvidia0") or system.exists("/dev/nvidiactl")
        yield Finding(
            name="GPU",
            status="unknown" if devices else "ok",
            value="device files of an NVIDIA GPU, but nvidia-smi gives no answer"
            if devices
            else "no NVIDIA GPU found",
            cost="without nvidia-smi clocks, heat and other users of a GPU are out of sight",
            fix="install nvidia-smi of the driver's version" if devices else "",
            verify="nvidia-smi"
            if devices
            else "command -v nvidia-smi || ls /dev | grep -c nvidia || true",
        )
        return
    for row in rows:
        yield from _gpu_findings(row, shlex.join(command))
    yield _gpu_processes(system)


def _gpu_findings(row: Mapping[str, str | None], verify: str) -> Iterator[Finding]:
    name = f"GPU {row['index']}"
    persistence = row["persistence_mode"]
    yield Finding(
        name=f"{name} persistence",
        status={"Enabled": "ok", "Disabled": "warning"}.get(persistence or "", "unknown"),  # type: ignore[arg-type]
        value=f"{row['name']}: {persistence or 'not told'}",
        cost="without it the driver unloads between processes: the first run of each pays for it",
        fix="sudo nvidia-smi -pm 1" if persistence == "Disabled" else "",
        verify=verify,
    )
    reasons = throttle_reasons(row["reasons"])
    harmful = bool(reasons and reasons[0] & _HARMFUL_REASONS)
    names = "not told" if reasons is None else ", ".join(reasons[1]) or "none"
    yield Finding(
        name=f"{name} clocks",
        status="unknown" if reasons is None else "problem" if harmful else "ok",
        value=f"{row['clocks.sm'] or '?'} of {row['clocks.max.sm'] or '?'} MHz, "
        f"{row['temperature.gpu'] or '?'} degrees C, {row['utilization.gpu'] or '?'} % busy; "
        f"held back by: {names}",
        cost="clocks follow power and heat: the same kernel is slower once the limit is reached",
        fix=f"sudo nvidia-smi -i {row['index']} -lgc MHZ,MHZ  # a clock that it can hold"
        if harmful
        else "",
        verify=verify,
    )


def _gpu_processes(system: System) -> Finding:
    command = ["nvidia-smi", f"--query-compute-apps={','.join(_GPU_PROCESS_FIELDS)}", _CSV]
    text = system.run(command)
    rows = None if text is None else parse_nvidia_csv(text, _GPU_PROCESS_FIELDS)
    # The children of this process are ours.
    names = [
        f"{row['process_name']} (pid {row['pid']}, {row['used_memory']} MiB)" for row in rows or ()
    ]
    return Finding(
        name="GPU processes",
        status="unknown" if rows is None else "problem" if rows else "ok",
        value="not told"
        if rows is None
        else "; ".join(names) or "none seen (a container hides those outside)",
        cost="another process shares the GPU's time and memory: latencies grow and spread",
        fix="wait for them, or choose another GPU with CUDA_VISIBLE_DEVICES" if rows else "",
        verify=shlex.join(command),
    )


_CSV = "--format=csv,noheader,nounits"


def _gpus(system: System) -> tuple[list[str], list[dict[str, str | None]]]:
    """Returns the command that answered, and a row for each GPU."""
    command: list[str] = []
    for reason in _REASON_FIELDS:
        fields = (*_GPU_FIELDS, reason)
        command = ["nvidia-smi", f"--query-gpu={','.join(fields)}", _CSV]
        if text := system.run(command):
            return command, parse_nvidia_csv(text, (*_GPU_FIELDS, "reasons"))
    return command, []


def parse_nvidia_csv(text: str, fields: Sequence[str]) -> list[dict[str, str | None]]:
    """Returns a row for each line; `[N/A]` is None, other texts are left out."""
    rows = []
    for cells in csv.reader(text.splitlines(), skipinitialspace=True):
        values = [cell.strip() for cell in cells]
        if len(values) == len(fields):
            rows.append(
                {
                    field: None if not value or value.startswith("[") or value == "N/A" else value
                    for field, value in zip(fields, values)
                }
            )
    return rows


def throttle_reasons(text: str | None) -> tuple[int, tuple[str, ...]] | None:
    """Returns the bits of a hexadecimal mask and the names of those that slow a GPU down."""
    try:
        bits = int(text or "", 16)
    except ValueError:
        return None
    return bits, tuple(
        name for bit, name in _GPU_REASONS.items() if bits & bit & ~_HARMLESS_REASONS
    )


def _quota(directory: Path) -> Iterator[tuple[float | None, Path]]:
    """Yields the quota of a group in CPUs, None for unlimited, and the file that says so."""
    version_2, version_1 = directory / "cpu.max", directory / "cpu.cfs_quota_us"
    if maximum := _text(version_2).split():
        limit, period = maximum if len(maximum) == 2 else (maximum[0], "100000")
        yield (None if limit == "max" else int(limit) / int(period)), version_2
    if text := _text(version_1):
        period = _text(directory / "cpu.cfs_period_us") or "100000"
        yield (None if int(text) < 0 else int(text) / int(period)), version_1


def _meminfo(system: System) -> dict[str, int]:
    """Returns the lines of /proc/meminfo in bytes."""
    found = {}
    for line in (system.read("/proc/meminfo") or "").splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        if words and words[0].isdigit():
            found[name] = int(words[0]) * (1024 if words[1:] == ["kB"] else 1)
    return found


def _cpu_times() -> dict[int, tuple[str, float]]:
    """Returns name and CPU seconds of each process that can be seen."""
    found = {}
    for process in psutil.process_iter(["name", "cpu_times"]):
        times = process.info["cpu_times"]
        if times is not None:
            found[process.pid] = (process.info["name"] or "?", times.user + times.system)
    return found


def _absolute(system: System, path: Path) -> str:
    return "/" + str(path.relative_to(system.root))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
