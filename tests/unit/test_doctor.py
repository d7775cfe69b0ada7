"""What the doctor reads from recorded machines, and from this one."""

import argparse
import json
import subprocess
import sys

import attrs
import pytest

from comparative_benchmark.doctor import ceilings, checks, command, options
from comparative_benchmark.doctor.ceilings import Ceilings, Copy, Gemm, share_of_roof
from comparative_benchmark.doctor.checks import Finding, Observed, System

CPU = "sys/devices/system/cpu"
QUIET = """\
0, NVIDIA H200, Enabled, 345, 1980, 31, 0, 0x0000000000000001
"""
HELD_BACK = """\
0, NVIDIA H200, Disabled, 1200, 1980, 84, 100, 0x0000000000000064
1, NVIDIA H200, [N/A], [Not Supported], 1980, 30, [N/A], [Not Supported]
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
        (checks.smt, {f"{CPU}/smt/active": "1\n"}, "ok", "on: 2 CPUs of the mask are 2 cores"),
        (checks.smt, {f"{CPU}/smt/active": "1\n",
                      f"{CPU}/cpu0/topology/thread_siblings_list": "0-1\n",
                      f"{CPU}/cpu1/topology/thread_siblings_list": "0-1\n"},
         "warning", "on: 2 CPUs of the mask are 1 cores"),
        (checks.load, {"proc/loadavg": "0.10 0.2 0.3 1/91 5\n"}, "ok", "0.10 in the last minute"),
        (checks.load, {"proc/loadavg": "3.10 0.2 0.3 1/91 5\n"}, "warning", "3.10"),
        (checks.heat, {f"{CPU}/cpu0/thermal_throttle/core_throttle_count": "0\n"}, "ok", "0 times"),
        (checks.heat, {f"{CPU}/cpu0/thermal_throttle/core_throttle_count": "9\n",
                       "sys/class/thermal/thermal_zone0/temp": "91000\n"},
         "warning", "slowed 9 times since the start; 91 degrees"),
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
        (checks.virtualisation, {"proc/cpuinfo": "flags : fpu hypervisor sse2\n",
                                 "sys/class/dmi/id/sys_vendor": "QEMU\n", ".dockerenv": ""},
         "warning", "virtual machine (QEMU); container (/.dockerenv)"),
        (checks.cpu_quota, {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.stat": "",
                            "sys/fs/cgroup/cpu.max": "150000 100000\n"},
         "problem", "quota of 1.5 CPUs; 2 CPUs"),
        (checks.cpu_quota, {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.stat": "",
                            "sys/fs/cgroup/cpu.max": "max 100000\n"}, "ok", "no quota"),
        (checks.cpu_quota, {"proc/self/cgroup": "1:cpu:/\n",
                            "sys/fs/cgroup/cpu/cpu.stat": "nr_throttled 7\nthrottled_time 1\n",
                            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "400000\n",
                            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n"},
         "ok", "quota of 4 CPUs; 2 CPUs in the mask; stopped 7 times"),
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
    assert found.value.startswith("quota of 1 CPUs")
    assert found.fix.startswith("cbs run --threads 1")
    assert "/sys/fs/cgroup/pod/box/cpu.max /sys/fs/cgroup/pod/cpu.max" in found.verify


def observed(foreign, steal=0.0, busiest=()):
    found = checks.observe(checks.conditions.ROOT, seconds=0.01)
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
    assert found.value == "50% of our CPUs busy during 1 s; cc1plus (pid 42) 98% of a CPU"
    assert "kill -STOP 42;" in found.fix
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
    """Answers as nvidia-smi does: by what its first option asks for."""

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
    persistence, clocks, processes = checks.nvidia(machine(run=run))
    assert (persistence.status, persistence.value) == ("ok", "NVIDIA H200: Enabled")
    assert (clocks.status, clocks.name) == ("ok", "GPU 0 clocks")
    assert clocks.value == "345 of 1980 MHz, 31 degrees C, 0 % busy; held back by: none"
    assert processes.status == "ok"


def test_gpus_that_are_held_back_and_shared(machine):
    # An older driver knows the field by its older name alone.
    run = gpu({"clocks_throttle_reasons": HELD_BACK, "compute-apps": PROCESSES})
    found = list(checks.nvidia(machine(run=run)))
    assert [item.status for item in found] == [
        "warning",
        "problem",
        "unknown",
        "unknown",
        "problem",
    ]
    assert found[1].value.endswith("held back by: power cap, heat (software), heat (hardware)")
    assert found[3].value.startswith("? of 1980 MHz")
    assert found[4].value == "python3 (pid 4242, 1024 MiB); /usr/bin/a b (pid 77, None MiB)"
    assert "clocks_throttle_reasons.active" in found[1].verify
    assert "noheader,nounits" in found[4].verify


def test_texts_that_are_no_table_give_no_rows():
    assert checks.parse_nvidia_csv("No devices were found\n\n", ("a", "b")) == []
    assert checks.parse_nvidia_csv("1, [N/A]\n", ("a", "b")) == [{"a": "1", "b": None}]
    assert checks.throttle_reasons(None) is None
    assert checks.throttle_reasons("[N/A]") is None
    assert checks.throttle_reasons("0x0000000000000003") == (3, ())


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    return checks.examine(System(artifact_root=tmp_path_factory.mktemp("root")))


def test_every_claim_about_this_machine_can_be_checked(here):
    for finding in here:
        assert attrs.asdict(finding).keys() == attrs.fields_dict(Finding).keys()
        assert finding.verify
        assert finding.cost
        if finding.status != "unknown":
            done = subprocess.run(
                finding.verify, shell=True, capture_output=True, text=True, timeout=60, check=False
            )
            assert done.returncode == 0, (finding.name, finding.verify, done.stderr)
            assert done.stdout.strip(), finding.verify


def test_names_differ(here):
    names = [finding.name for finding in here]
    assert len(names) == len(set(names))
    assert {"governor", "steal", "CPU quota", "timer"} <= set(names)


# 100 GFLOP/s and 10 GB/s: the ridge is at 10 flops a byte.
ROOF = Ceilings(
    cpu_model="Some CPU @ 2.0 GHz",
    threads=2,
    date="2026-01-01T00:00:00+00:00",
    gemms=(
        Gemm(data_type="fp32", library="numpy", version="1", size=512, gflops=50.0),
        Gemm(data_type="fp32", library="torch", version="1", size=1024, gflops=100.0),
        Gemm(data_type="bf16", library="torch", version="1", size=1024, gflops=400.0),
    ),
    copies=(
        Copy(threads=1, buffer_bytes=1, version="1", gb_per_s=8.0),
        Copy(threads=2, buffer_bytes=1, version="1", gb_per_s=10.0),
    ),
)


@pytest.mark.parametrize(
    ("flops", "bytes_moved", "latency_ms", "data_type", "share"),
    [
        (1e9, 1e6, 20.0, "fp32", 0.5),  # 10 ms of arithmetic, 0.1 ms of transfers
        (1e9, 1e6, 20.0, "bf16", 0.125),  # 2.5 ms of arithmetic
        (1e6, 1e8, 40.0, "fp32", 0.25),  # 10 ms of transfers, 0.01 ms of arithmetic
        (1e9, 1e8, 10.0, "fp32", 1.0),  # on the ridge
        (0.0, 1e8, 20.0, "fp32", 0.5),
        (2e9, 1e6, 10.0, "fp32", 2.0),  # a count or a ceiling that does not fit: shown, not hidden
        (None, 1e6, 20.0, "fp32", None),
        (1e9, None, 20.0, "fp32", None),
        (1e9, 1e6, 20.0, "fp16", None),
        (1e9, 1e6, 0.0, "fp32", None),
        (1e9, 1e6, -1.0, "fp32", None),
        (1e9, 1e6, float("nan"), "fp32", None),
        (float("inf"), 1e6, 1.0, "fp32", None),
        (-1.0, 1e6, 1.0, "fp32", None),
        (0.0, 0.0, 1.0, "fp32", None),
    ],
)
def test_share_of_roof(flops, bytes_moved, latency_ms, data_type, share):
    found = share_of_roof(flops, bytes_moved, latency_ms, ROOF, data_type)
    assert found == (share if share is None else pytest.approx(share))


def test_ceilings_come_back_from_their_file(root, monkeypatch):
    monkeypatch.setattr(ceilings, "_cpu_model", lambda: ROOF.cpu_model)
    assert ceilings.load_ceilings(2) is None
    path = ceilings.save_ceilings(ROOF)
    assert path == root / "ceilings-some-cpu-2-0-ghz-2.json"
    assert ceilings.load_ceilings(2) == ROOF
    assert ceilings.load_ceilings(1) is None


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "{}", json.dumps(attrs.asdict(ROOF) | {"schema": 0}),
     json.dumps(attrs.asdict(ROOF) | {"copies": [{"threads": 1, "gb_per_s": -1}]})],
)  # fmt: skip
def test_a_damaged_file_is_none(root, monkeypatch, text):
    monkeypatch.setattr(ceilings, "_cpu_model", lambda: ROOF.cpu_model)
    path = ceilings.save_ceilings(ROOF)
    path.write_text(text)
    assert ceilings.load_ceilings(2) is None


def test_all_last_level_caches_count_once(tmp_path):
    for cpu, shared in enumerate(["0-1", "0-1", "2-3", "2-3"]):
        for index, size in ((0, "32K"), (3, "16384K")):
            path = tmp_path / CPU / f"cpu{cpu}" / "cache" / f"index{index}"
            path.mkdir(parents=True)
            (path / "size").write_text(size + "\n")
            (path / "shared_cpu_list").write_text((shared if index else str(cpu)) + "\n")
    assert ceilings.last_level_cache_bytes(tmp_path) == 2 * 16384 * 1024
    assert ceilings.last_level_cache_bytes(tmp_path / "nowhere") == 0


def test_measured_ceilings_name_what_could_not_be_measured(monkeypatch):
    answers = {
        ("_gemm", "torch", "fp32"): {"version": "1", "size": 512, "gflops": 5.0},
        ("_copy",): {"version": "1", "gb_per_s": 2.0},
    }

    def child(*arguments):
        fitting = (key for key in answers if arguments[: len(key)] == key)
        return answers.get(next(fitting, ()), "no such thing")

    monkeypatch.setattr(ceilings, "_child", child)
    monkeypatch.setattr(ceilings, "_products", lambda: [("torch", "fp32"), ("jax", "bf16")])
    found = ceilings.measure_ceilings(1)
    assert [gemm.gflops for gemm in found.gemms] == [5.0]
    assert [copy.threads for copy in found.copies] == [1]
    assert found.skipped == ("jax bf16: no such thing",)
    answers.clear()
    with pytest.raises(ceilings.CeilingsError, match="jax bf16: no such thing"):
        ceilings.measure_ceilings(1)


def test_a_child_that_fails_says_why():
    assert "numpy has no bf16 product" in ceilings._child("_gemm", "numpy", "bf16", "1")
    assert "only" in ceilings._child("_gemm", "numpy", "fp32", "100000")


def test_the_children_measure(monkeypatch):
    copied = ceilings._child("_copy", str(2**20), "1")
    assert copied["gb_per_s"] > 0
    product = ceilings._child("_gemm", "numpy", "fp32", "1")
    assert product["gflops"] > 0.1
    assert product["size"] >= 512


def run_doctor(*arguments):
    parser = argparse.ArgumentParser()
    options.add_arguments(parser)
    return command.run(parser.parse_args(arguments))


@pytest.fixture
def findings(monkeypatch):
    """Puts findings in the place of this machine's."""

    def put(*statuses):
        found = [
            Finding(name=f"n{i}", status=status, value="[v]", cost="c", fix="f", verify="true")
            for i, status in enumerate(statuses)
        ]
        monkeypatch.setattr(command, "examine", lambda _: found)

    return put


@pytest.mark.parametrize(
    ("statuses", "strict", "code"),
    [
        (["ok", "unknown"], True, 0),
        (["ok", "warning"], False, 0),
        (["ok", "warning"], True, 2),
        (["problem"], True, 2),
        (["problem"], False, 0),
    ],
)
def test_exit_codes(findings, capsys, statuses, strict, code):
    findings(*statuses)
    assert run_doctor(*["--strict"] * strict) == code
    out = capsys.readouterr().out
    assert "[v]" in out
    assert "n0:               true" in out


def test_json(findings, capsys):
    findings("warning")
    assert run_doctor("--json") == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["findings"][0]["status"] == "warning"
    assert printed["ceilings"] is None


def test_ceilings_that_can_not_be_measured_are_a_failure(findings, capsys, monkeypatch):
    findings("ok")

    def fail(*_, **__):
        raise ceilings.CeilingsError("no library")

    monkeypatch.setattr(ceilings, "measure_ceilings", fail)
    assert run_doctor("--ceilings") == 1
    assert "cbs: no library" in capsys.readouterr().err
    assert run_doctor("--ceilings", "--threads", "0") == 1
    assert "--threads 0" in capsys.readouterr().err


def test_ceilings_are_kept_and_printed(findings, capsys, monkeypatch, tmp_path):
    findings("ok")
    monkeypatch.setattr(ceilings, "measure_ceilings", lambda *_, **__: ROOF)
    # So that the option's change of the environment ends with the test.
    monkeypatch.setenv("CBS_ROOT_DIR", "unused")
    assert run_doctor("--ceilings", "--root-dir", str(tmp_path / "kept")) == 0
    out, err = capsys.readouterr()
    assert "100 GFLOP/s *" in out
    assert "50 GFLOP/s" in out
    assert "10 GB/s" in out
    assert "ceilings-some-cpu-2-0-ghz-2.json" in err
    assert len(list((tmp_path / "kept").iterdir())) == 1


def test_the_command_imports_no_framework():
    code = (
        "import sys, comparative_benchmark.doctor.command; "
        "print(sorted({'torch', 'jax', 'jaxlib', 'iree', 'flax', 'transformers', 'tensorflow'}"
        " & {name.partition('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
