"""Each claim about a recorded machine equals the output of the printed command."""

import re

import pytest
from doctor_claims import (
    first_of,
    heat_of,
    inside_of,
    marks_of,
    no_turbo_of,
    quota_of,
    shell,
    smt_of,
    text_of,
    turbo_of,
)

from comparative_benchmark.maintenance.doctor import checks
from comparative_benchmark.maintenance.doctor.system import System

CPU = "sys/devices/system/cpu"
GROUP = "sys/fs/cgroup"
HEAT = f"{CPU}/cpu{{}}/thermal_throttle/{{}}_throttle_count"
MEMINFO = (
    "MemTotal: 33554432 kB\nMemAvailable: 20132659 kB\nSwapTotal: 2097152 kB\nSwapFree: 9 kB\n"
)
RECORDED = [
    (checks.virtualisation, marks_of, {"proc/cpuinfo": "flags : fpu\n", "proc/1/cgroup": "0::/\n"}),
    (checks.virtualisation, marks_of,
     {"proc/cpuinfo": "flags : hypervisor\nflags : hypervisor\n", ".dockerenv": ""}),
    (checks.virtualisation, marks_of, {"proc/cpuinfo": "flags : fpu\n", "run/.containerenv": ""}),
    (checks.governor, text_of,
     {f"{CPU}/cpu{n}/cpufreq/scaling_governor": "powersave\n" for n in (0, 1)}),
    (checks.governor, text_of,
     {f"{CPU}/cpu0/cpufreq/scaling_governor": "performance\n",
      f"{CPU}/cpu1/cpufreq/scaling_governor": "powersave\n"}),
    # A CPU that is not ours is neither claimed nor printed.
    (checks.governor, text_of,
     {f"{CPU}/cpu{n}/cpufreq/scaling_governor": f"g{n}\n" for n in (0, 1, 2)}),
    (checks.turbo, no_turbo_of, {f"{CPU}/intel_pstate/no_turbo": "0\n"}),
    (checks.turbo, no_turbo_of, {f"{CPU}/intel_pstate/no_turbo": "1\n"}),
    (checks.turbo, turbo_of, {f"{CPU}/cpufreq/boost": "1\n"}),
    (checks.turbo, turbo_of, {f"{CPU}/cpufreq/boost": "0\n"}),
    (checks.smt, smt_of, {f"{CPU}/smt/active": "0\n",
                          f"{CPU}/cpu0/topology/thread_siblings_list": "0\n"}),
    (checks.smt, smt_of, {f"{CPU}/smt/active": "1\n"}
     | {f"{CPU}/cpu{n}/topology/thread_siblings_list": "0-1\n" for n in (0, 1)}),
    (checks.smt, smt_of, {f"{CPU}/smt/active": "1\n"}
     | {f"{CPU}/cpu{n}/topology/thread_siblings_list": f"{n},{n + 4}\n" for n in range(8)}),
    (checks.load, first_of, {"proc/loadavg": "3.10 0.2 0.3 1/91 5\n"}),
    (checks.cpu_quota, quota_of, {"proc/self/cgroup": "0::/pod/box\n",
                                  f"{GROUP}/pod/cpu.stat": "nr_periods 9\nnr_throttled 3\n",
                                  f"{GROUP}/pod/cpu.max": "150000 100000\n",
                                  f"{GROUP}/pod/box/cpu.stat": "nr_throttled 1\n",
                                  f"{GROUP}/pod/box/cpu.max": "max 100000\n"}),
    (checks.cpu_quota, quota_of, {"proc/self/cgroup": "1:cpu:/\n",
                                  f"{GROUP}/cpu/cpu.stat": "nr_throttled 7\nthrottled_time 1\n",
                                  f"{GROUP}/cpu/cpu.cfs_quota_us": "20000\n",
                                  f"{GROUP}/cpu/cpu.cfs_period_us": "50000\n"}),
    (checks.cpu_quota, quota_of, {"proc/self/cgroup": "1:cpu:/\n",
                                  f"{GROUP}/cpu/cpu.stat": "nr_throttled 0\n",
                                  f"{GROUP}/cpu/cpu.cfs_quota_us": "-1\n",
                                  f"{GROUP}/cpu/cpu.cfs_period_us": "100000\n"}),
    (checks.heat, heat_of, {HEAT.format(n, part): "3\n" for n in (0, 1)
                            for part in ("core", "package")}
     | {f"sys/class/thermal/thermal_zone{n}/temp": f"{t}\n" for n, t in ((0, 9000), (1, 61000))}),
    (checks.heat, heat_of, {HEAT.format(n, "core"): f"{n}\n" for n in range(12)}),
    (checks.clock_source, text_of,
     {"sys/devices/system/clocksource/clocksource0/current_clocksource": "hpet\n"}),
    (checks.aslr, lambda out: [f"({out.strip()})"], {"proc/sys/kernel/randomize_va_space": "1\n"}),
    (checks.huge_pages, inside_of,
     {"sys/kernel/mm/transparent_hugepage/enabled": "always madvise [never]\n"}),
    (checks.memory, text_of, {"proc/meminfo": MEMINFO}),
    (checks.swap, text_of, {"proc/meminfo": MEMINFO}),
]  # fmt: skip


@pytest.fixture
def machine(tmp_path):
    """Makes a system of recorded files, and a shell in which they replace `/`."""

    def make(files, cpus=(0, 1)):
        root = tmp_path / "machine"
        for name, text in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

        def run(command):
            moved = re.sub(r"(?<![\w.])/(?=proc/|sys/|run/|\.dockerenv)", f"{root}/", command)
            done = shell(moved)
            return done.stdout.replace(str(root), "")

        return System(root=root, artifact_root=tmp_path, cpus=cpus, run=lambda _: None), run

    return make


@pytest.mark.parametrize(
    ("check", "read", "files"),
    RECORDED,
    ids=[f"{check.__name__}-{i}" for i, (check, _, _) in enumerate(RECORDED)],
)
def test_the_command_prints_what_was_claimed_of_a_recorded_machine(machine, check, read, files):
    system, run = machine(files)
    found = check(system)
    out = run(found.verify)
    assert out.strip() or check is checks.virtualisation
    for text in read(out):
        assert text in found.value, (found.verify, out)


def test_the_containers_memory_limit_counts_and_can_be_read(machine):
    cached = [f"inactive_file {2**30}", f"active_file {2**29}"]
    limits = {
        f"{GROUP}/memory.max": f"{3 * 2**30}\n",
        f"{GROUP}/memory.current": f"{5 * 2**29}\n",
        f"{GROUP}/memory.stat": "\n".join(["anon 5", *cached, "unevictable 0"]),
    }
    system, run = machine({"proc/meminfo": MEMINFO} | limits)
    found = checks.memory(system)
    assert found.value == "2.0 GiB available (the container's limit)"
    assert found.status == "warning"
    assert run(found.verify).split("\n")[1:5] == [str(3 * 2**30), str(5 * 2**29), *cached]
    system, run = machine({f"{GROUP}/memory.max": "max\n"})
    assert checks.memory(system).value == run(checks.memory(system).verify).strip() + " available"


def test_only_a_clock_that_is_there_is_proposed(machine):
    path = "sys/devices/system/clocksource/clocksource0"
    files = {f"{path}/current_clocksource": "hpet\n", f"{path}/available_clocksource": "hpet tsc\n"}
    assert checks.clock_source(machine(files)[0]).fix.startswith("echo tsc | sudo tee /sys/")
    files[f"{path}/available_clocksource"] = "hpet acpi_pm\n"
    assert "tee" not in checks.clock_source(machine(files)[0]).fix
