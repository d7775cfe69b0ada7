"""The doctor's facts of recorded machines; `test_doctor_verify` has this one."""

import os

import attrs
import pytest

from comparative_benchmark.analysis.machine import conditions
from comparative_benchmark.analysis.machine.other_processes import Observed
from comparative_benchmark.maintenance.doctor import _nvidia, checks, system
from comparative_benchmark.maintenance.doctor.system import System

CPU = "sys/devices/system/cpu"
QUIET = """\
0, NVIDIA H200, Enabled, 345, 1980, 31, 0, 4, 143771, Disabled, 580.95.05, 0x0000000000000001
"""
HELD_BACK = """\
0, NVIDIA H200, Disabled, 1200, 1980, 84, 100, 9000, 143771, Enabled, 470.1, 0x0000000000000064
1, NVIDIA T4, [N/A], [Not Supported], 1980, 30, [N/A], [N/A], 15360, [N/A], 470.1, [Not Supported]
"""
PROCESSES = "GPU-6f1a, 4242, python3, 1024\nGPU-6f1a, 77, /usr/bin/a b, [N/A]\n"


@pytest.fixture
def machine(tmp_path):
    """Makes a system of recorded files, on CPUs 0 and 1, without nvidia-smi."""

    def make(files=None, cpus=(0, 1), run=lambda _: None):
        root = tmp_path / "machine"
        root.mkdir(exist_ok=True)
        for name, text in (files or {}).items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return System(root=root, artifact_root=tmp_path, cpus=cpus, run=run)

    return make


FILE_CHECKS = (
    checks.virtualisation,
    checks.governor,
    checks.turbo,
    checks.smt,
    checks.load,
    checks.cpu_quota,
    checks.heat,
    checks.clock_source,
    checks.aslr,
    checks.huge_pages,
    checks.memory,
    checks.swap,
)


def test_output_of_commands_may_have_any_bytes():
    assert system._output(["printf", r"a\377b"]) == "a\ufffdb"


@pytest.mark.parametrize("check", FILE_CHECKS, ids=lambda check: check.__name__)
def test_a_missing_file_is_unknown(machine, check):
    found = check(machine())
    assert found.status == "unknown"
    assert not found.fix
    assert found.verify


@pytest.mark.parametrize(
    ("check", "files", "status", "value"),
    [
        (checks.governor,
         {f"{CPU}/cpu{n}/cpufreq/scaling_governor": "performance\n" for n in (0, 1)},
         "ok", "performance"),
        (checks.governor, {f"{CPU}/cpu0/cpufreq/scaling_governor": "performance\n",
                           f"{CPU}/cpu1/cpufreq/scaling_governor": "powersave\n"},
         "warning", "performance, powersave"),
        (checks.turbo, {f"{CPU}/intel_pstate/no_turbo": "0\n"}, "warning", "on"),
        (checks.turbo, {f"{CPU}/intel_pstate/no_turbo": "1\n"}, "ok", "off"),
        (checks.turbo, {f"{CPU}/cpufreq/boost": "1\n"}, "warning", "on"),
        (checks.turbo, {f"{CPU}/cpufreq/boost": "0\n"}, "ok", "off"),
        (checks.smt, {f"{CPU}/smt/active": "0\n"}, "ok", "off"),
        (checks.smt, {f"{CPU}/smt/active": "1\n"}, "ok", "on (usable CPUs: 2, cores: 2)"),
        (checks.smt, {f"{CPU}/smt/active": "1\n",
                      f"{CPU}/cpu0/topology/thread_siblings_list": "0-1\n",
                      f"{CPU}/cpu1/topology/thread_siblings_list": "0-1\n"},
         "warning", "on (usable CPUs: 2, cores: 1)"),
        (checks.load, {"proc/loadavg": "0.10 0.2 0.3 1/91 5\n"}, "ok", "0.10 in the last minute"),
        (checks.load, {"proc/loadavg": "3.10 0.2 0.3 1/91 5\n"}, "warning", "3.10"),
        (checks.heat, {f"{CPU}/cpu0/thermal_throttle/core_throttle_count": "0\n"},
         "ok", "total 0"),
        (checks.heat, {f"{CPU}/cpu0/thermal_throttle/core_throttle_count": "9\n",
                       "sys/class/thermal/thermal_zone0/temp": "91000\n"},
         "warning", "total 9 since boot; maximum 91 degrees"),
        (checks.clock_source,
         {"sys/devices/system/clocksource/clocksource0/current_clocksource": "hpet\n"},
         "problem", "hpet"),
        (checks.clock_source,
         {"sys/devices/system/clocksource/clocksource0/current_clocksource": "tsc\n"}, "ok", "tsc"),
        (checks.aslr, {"proc/sys/kernel/randomize_va_space": "2\n"}, "ok", "full (2)"),
        (checks.aslr, {"proc/sys/kernel/randomize_va_space": "0\n"}, "warning", "off (0)"),
        (checks.huge_pages,
         {"sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n"},
         "ok", "madvise"),
        (checks.huge_pages,
         {"sys/kernel/mm/transparent_hugepage/enabled": "[always] madvise never\n"},
         "warning", "always"),
        (checks.memory, {"proc/meminfo": "MemAvailable:   16777216 kB\n"}, "ok", "16.0 GiB"),
        (checks.memory, {"proc/meminfo": "MemAvailable:   1048576 kB\n"}, "warning", "1.0 GiB"),
        (checks.swap, {"proc/meminfo": "SwapTotal: 2097152 kB\nSwapFree: 1048576 kB\n"},
         "warning", "1.0 GiB of 2.0 GiB"),
        (checks.swap, {"proc/meminfo": "SwapTotal: 0 kB\nSwapFree: 0 kB\n"}, "ok", "0.0 GiB"),
        (checks.virtualisation, {"proc/cpuinfo": "flags : fpu sse2\n"}, "ok", "no hypervisor flag"),
        (checks.virtualisation, {"proc/cpuinfo": "Features : fp asimd\n"}, "unknown", "unknown"),
        (checks.virtualisation, {"proc/cpuinfo": "flags : fpu hypervisor sse2\n",
                                 "sys/class/dmi/id/sys_vendor": "QEMU\n", ".dockerenv": ""},
         "warning", "virtual machine (QEMU); container (/.dockerenv)"),
        (checks.cpu_quota, {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.stat": "",
                            "sys/fs/cgroup/cpu.max": "150000 100000\n"},
         "problem", "quota in CPUs: 1.5; usable CPUs: 2"),
        (checks.cpu_quota, {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.stat": "",
                            "sys/fs/cgroup/cpu.max": "max 100000\n"}, "ok", "no quota"),
        (checks.cpu_quota, {"proc/self/cgroup": "1:cpu:/\n",
                            "sys/fs/cgroup/cpu/cpu.stat": "nr_throttled 7\nthrottled_time 1\n",
                            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "400000\n",
                            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n"},
         "ok", "quota in CPUs: 4; usable CPUs: 2; times throttled so far: 7"),
    ],
)  # fmt: skip
def test_recorded_files(machine, check, files, status, value):
    found = check(machine(files))
    assert (found.status, value in found.value) == (status, True), found
    if status == "problem" or (status == "warning" and check is not checks.virtualisation):
        assert found.fix


def test_the_smallest_quota_around_the_process_counts(machine):
    found = checks.cpu_quota(
        machine(
            {
                "proc/self/cgroup": "0::/pod/box\n",
                "sys/fs/cgroup/pod/cpu.stat": "",
                "sys/fs/cgroup/pod/cpu.max": "100000 100000\n",
                "sys/fs/cgroup/pod/box/cpu.stat": "",
                "sys/fs/cgroup/pod/box/cpu.max": "max 100000\n",
            }
        )
    )
    assert found.value.startswith("quota in CPUs: 1;")
    assert found.fix.startswith("cbs run --threads 1")
    for group in ("pod/box", "pod"):
        assert f"/sys/fs/cgroup/{group}/cpu.max" in found.verify


def observed(foreign, steal=0.0, busiest=()):
    found = checks.observe(conditions.ROOT, seconds=0.01)
    changed = attrs.evolve(
        found.conditions,
        foreign_cpu_share=foreign,
        steal_share=steal,
        contended=None if foreign is None else foreign > 0.05,
    )
    return Observed(conditions=changed, busiest=busiest)


def test_busy_processes_are_named():
    found = checks.foreign_processes(observed(0.5, busiest=((42, "cc1plus", 0.98),)))
    assert found.status == "problem"
    assert (
        found.value
        == "other processes used 50% of the usable CPU time in 1 s; cc1plus (pid 42) 98% of a CPU"
    )
    assert "kill -STOP 42;" in found.fix
    # A stopped terminal would stop this process, too.
    ours = tuple((pid, "terminal", 0.98) for pid in (1, os.getppid()))
    assert checks.foreign_processes(observed(0.5, busiest=ours)).fix == ""
    elsewhere = checks.foreign_processes(observed(0.01, busiest=((42, "cc1plus", 0.98),)))
    assert elsewhere.status == "warning"
    assert checks.foreign_processes(observed(0.0)).status == "ok"
    assert checks.foreign_processes(observed(None)).status == "unknown"


def test_steal_is_a_problem():
    assert checks.steal(observed(0.0, steal=0.1)).status == "problem"
    assert checks.steal(observed(0.0)).status == "ok"
    assert checks.steal(observed(0.0, steal=None)).status == "unknown"


def test_disk_is_looked_at_where_the_root_will_be(tmp_path):
    found = checks.disk(System(artifact_root=tmp_path / "not" / "yet"))
    assert str(tmp_path) in found.value
    assert "not" not in found.value.removeprefix(str(tmp_path)).split("/")


def test_the_timer_is_measured():
    resolution_ns, cost_ns = checks.measure_timer()
    assert 0 < resolution_ns < 1e6
    assert 0 < cost_ns < 1e5


def gpu(answers):
    """Answers like nvidia-smi, depending on the first option."""

    def run(arguments):
        return next((text for words, text in answers.items() if words in arguments[1]), None)

    return run


def test_without_nvidia_smi_there_is_no_gpu(machine):
    (found,) = checks.nvidia(machine())
    assert (found.status, found.value) == ("ok", "no NVIDIA GPU found")
    (found,) = checks.nvidia(machine({"dev/nvidia0": ""}))
    assert found.status == "unknown"


def test_a_quiet_gpu(machine):
    run = gpu({"clocks_event_reasons": QUIET, "compute-apps": ""})
    persistence, clocks, memory, mig, processes = checks.nvidia(machine(run=run))
    assert (persistence.status, persistence.value) == ("ok", "NVIDIA H200: Enabled")
    assert (clocks.status, clocks.name) == ("ok", "GPU 0 clocks")
    assert clocks.value == "345 of 1980 MHz, 31 degrees C, 0 % busy; held back by: none"
    assert (memory.status, memory.value) == ("ok", "4 of 143771 MiB used")
    assert (mig.status, mig.value) == ("ok", "Disabled; driver 580.95.05")
    assert processes.status == "ok"


def test_gpus_that_are_held_back_and_shared(machine):
    # An older driver has only the older name of the field.
    run = gpu({"clocks_throttle_reasons": HELD_BACK, "compute-apps": PROCESSES})
    found = list(checks.nvidia(machine(run=run)))
    assert [item.status for item in found] == [
        *("warning", "problem", "warning", "warning"),
        *("unknown", "unknown", "unknown", "ok"),
        "problem",
    ]
    assert found[1].value.endswith("held back by: power cap, heat (software), heat (hardware)")
    assert found[2].value == "9000 of 143771 MiB used"
    assert found[3].value == "Enabled; driver 470.1"
    assert found[3].fix.startswith("sudo nvidia-smi -i 0 -mig 0")
    assert found[5].value.startswith("? of 1980 MHz")
    assert found[6].value == "? of 15360 MiB used"
    assert found[7].value == "not supported; driver 470.1"
    assert found[8].value == "python3 (pid 4242, 1024 MiB); /usr/bin/a b (pid 77, ? MiB)"
    assert "clocks_throttle_reasons.active" in found[1].verify
    assert "noheader,nounits" in found[8].verify


def test_texts_that_are_no_table_give_no_rows():
    assert _nvidia.parse_nvidia_csv("No devices were found\n\n", ("a", "b")) == []
    assert _nvidia.parse_nvidia_csv("1, [N/A]\n", ("a", "b")) == [{"a": "1", "b": None}]
    assert _nvidia.throttle_reasons(None) is None
    assert _nvidia.throttle_reasons("[N/A]") is None
    assert _nvidia.throttle_reasons("0x0000000000000003") == (3, ())
