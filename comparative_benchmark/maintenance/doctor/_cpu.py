"""Checks of the CPUs: virtualisation, clock, threads per core, and quotas."""

import shlex
from collections.abc import Iterator
from pathlib import Path

from comparative_benchmark.analysis.machine import conditions
from comparative_benchmark.maintenance.doctor.system import CPU_DIRECTORY, Finding, System


def virtualisation(system: System) -> Finding:
    """Checks whether this is a virtual machine, a container, or both."""
    flags = (system.read("/proc/cpuinfo") or "").split()
    board = [f"/sys/class/dmi/id/{name}" for name in ("sys_vendor", "product_name")]
    named = " ".join(text for path in board if (text := system.read(path)))
    machine = "virtual machine" if "hypervisor" in flags else "no hypervisor flag"
    marks = [path for path in ("/.dockerenv", "/run/.containerenv") if system.exists(path)]
    groups = system.read("/proc/1/cgroup") or ""
    marks += [word for word in ("docker", "kubepods", "lxc", "containerd") if word in groups]
    container = f"container ({', '.join(marks)})" if marks else "no container detected"
    return Finding(
        name="virtualisation",
        status="unknown" if not flags else "warning" if "hypervisor" in flags else "ok",
        value=f"{machine}{f' ({named})' if named else ''}; {container}",
        cost="the host's clock, hyper-threads and other guests are not visible: rely on "
        "interleaved rounds and steal, not on absolute times",
        fix="if absolute times matter, measure on bare metal" if "hypervisor" in flags else "",
        verify="grep -o -m 1 -w hypervisor /proc/cpuinfo | head -n 1; "
        f"cat {' '.join(board)} /proc/1/cgroup 2>/dev/null; "
        "ls -d /.dockerenv /run/.containerenv 2>/dev/null || true",
    )


def governor(system: System) -> Finding:
    """Checks the frequency governors of our CPUs."""
    name = "cpufreq/scaling_governor"
    found = {text for path in system.of_cpus(name) if (text := system.read(path))}
    return Finding(
        name="governor",
        status="unknown" if not found else "ok" if found == {"performance"} else "warning",
        value=", ".join(sorted(found)) or "unavailable (no cpufreq, as in most virtual machines)",
        cost="all governors except `performance` raise the clock only after work has started: "
        "short runs are slower than long ones",
        fix="" if found <= {"performance"} else "sudo cpupower frequency-set -g performance",
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
        value += f": {len(system.cpus)} usable CPUs on {len(cores)} cores"
    elif active and "hypervisor" in (system.read("/proc/cpuinfo") or "").split():
        value += " (for the virtual CPUs; the host's setting is not visible)"
    one_each = ",".join(map(str, sorted(cores.values())))
    return Finding(
        name="SMT",
        status="unknown" if active is None else "warning" if shared else "ok",
        value=value,
        cost="two threads on one core share its execution units: how much each slows down depends "
        "on the other (a hypervisor may share cores without showing it)",
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
    value = "no quota" if smallest is None else f"quota of {smallest:.3g} CPUs"
    value += f"; {cpus} usable CPUs"
    if snapshot.cgroup_throttles:
        value += f"; throttled {snapshot.cgroup_throttles} times so far"
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
