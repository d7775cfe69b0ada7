"""Disturbances of a block by others, from recorded counters and from this machine."""

import os
import subprocess
import sys
import time

import attrs
import pytest

from comparative_benchmark.analysis.machine import conditions
from comparative_benchmark.analysis.machine.conditions import Snapshot, Ticks

STAT = """\
cpu  432071 10 56099 645502 16116 5 380 455 0 0
cpu0 180608 10 22609 368131 3435 2 72 229 0 0
cpu1 251463 0 33490 277371 12681 3 308 226 0 0
intr 2840401 0 0
ctxt 4839524
"""


def snapshot(time_ms=0.0, cpu_ms=0.0, busy=(0, 0), steal=(0, 0), **fields):
    cpus = {cpu: Ticks(busy[cpu], steal[cpu], 0) for cpu in range(len(busy))}
    given = {
        "load1": None,
        "involuntary_switches": 0,
        "mhz": (),
        "thermal_throttles": None,
        "cgroup_throttles": None,
        "cgroup_throttled_ms": None,
    }
    return Snapshot(
        time_ns=int(time_ms * 1e6), cpu_ns=int(cpu_ms * 1e6), cpus=cpus, **given | fields
    )


def between(after, *, before=None, threads=2, own_cpu_ms=0.0, wall_ms=1.0):
    return conditions.between(
        before or snapshot(), after, own_cpu_ms=own_cpu_ms, wall_ms=wall_ms, threads=threads
    )


@pytest.fixture
def tree(tmp_path):
    """Makes a tree of files that stands for `/`."""

    def write(**files):
        for name, text in files.items():
            path = tmp_path / name.replace("__", "/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path

    def put(files):
        return write(**{name.replace("/", "__"): text for name, text in files.items()})

    return put


@pytest.fixture
def mask(monkeypatch):
    def choose(*cpus):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(cpus))

    choose(0, 1)
    return choose


def test_recorded_counters_are_read(tree, mask):
    mask(1)
    cpu = "sys/devices/system/cpu/cpu1"
    root = tree(
        {
            "proc/stat": STAT,
            "proc/loadavg": "1.75 0.99 1.61 2/91 22372\n",
            f"{cpu}/cpufreq/scaling_cur_freq": "2600000\n",
            f"{cpu}/thermal_throttle/core_throttle_count": "3\n",
            f"{cpu}/thermal_throttle/package_throttle_count": "4\n",
        }
    )
    taken = conditions.take(root)
    busy = 251463 + 33490 + 3 + 308
    assert taken.cpus == {1: Ticks(busy, 226, 277371 + 12681)}
    assert taken.load1 == 1.75
    assert taken.mhz == (2600.0,)
    assert taken.thermal_throttles == 7
    assert taken.cgroup_throttled_ms is None


def test_a_system_that_tells_nothing_gives_nothing(tmp_path):
    before, after = conditions.take(tmp_path), conditions.take(tmp_path)
    assert before.cpus == {}
    assert (before.load1, before.mhz, before.thermal_throttles) == (None, (), None)
    found = between(after, before=before, own_cpu_ms=1.0, wall_ms=2.0)
    assert (found.foreign_cpu_share, found.steal_share, found.contended) == (None, None, None)
    assert "/proc/stat does not report it" in found.reasons[0]
    assert (found.start_mhz, found.end_mhz, found.gpus_at_end) == (None, None, ())
    assert found.cpu_wall_ratio == 0.5
    assert conditions.together([found, found]).contended is None


def test_version_2_counts_the_group_and_those_around_it(tree):
    top = "sys/fs/cgroup"
    root = tree(
        {
            "proc/self/cgroup": "0::/system/job\n",
            f"{top}/cpu.stat": "usage_usec 5\nuser_usec 3\nsystem_usec 2\n",
            f"{top}/system/cpu.stat": "usage_usec 5\nnr_throttled 2\nthrottled_usec 1500\n",
            f"{top}/system/job/cpu.stat": "usage_usec 5\nnr_throttled 1\nthrottled_usec 500\n",
        }
    )
    taken = conditions.take(root)
    assert (taken.cgroup_throttles, taken.cgroup_throttled_ms) == (3, 2.0)
    assert [path.name for path in conditions.cgroup_directories(root)] == [
        "job",
        "system",
        "cgroup",
    ]


def test_version_1_counts_nanoseconds_and_a_path_that_the_container_can_not_see(tree):
    root = tree(
        {
            "proc/self/cgroup": "5:memory:/x\n4:cpu,cpuacct:/docker/abc\n0::/\n",
            "sys/fs/cgroup/cpu,cpuacct/cpu.stat": "nr_periods 9\nnr_throttled 4\n"
            "throttled_time 7000000\n",
        }
    )
    taken = conditions.take(root)
    assert (taken.cgroup_throttles, taken.cgroup_throttled_ms) == (4, 7.0)


def test_a_quiet_second_is_clean():
    # 2 CPUs, 2 threads: 2000 ms busy, all of it ours.
    found = between(snapshot(1000, cpu_ms=1990, busy=(100, 100)), own_cpu_ms=1980.0, wall_ms=990.0)
    assert found.contended is False
    assert found.reasons == ()
    assert found.foreign_cpu_share == pytest.approx(0.005)
    assert found.steal_share == 0
    assert found.cpu_wall_ratio == 2.0


def test_what_others_take_from_us_is_contention():
    # Ours 1.4 CPUs, theirs 0.6.
    found = between(snapshot(1000, cpu_ms=1400, busy=(100, 100)))
    assert found.contended is True
    assert found.foreign_cpu_share == pytest.approx(0.3)
    assert found.reasons == ("other processes used 0.60 of a CPU (limit 0.05)",)


def test_others_may_have_the_cpus_that_we_do_not_use():
    after = snapshot(1000, cpu_ms=1000, busy=(100, 95))
    assert between(after, threads=1).contended is False
    assert between(after, threads=2).contended is True


def test_others_may_not_have_the_second_threads_of_our_cores():
    before, after = snapshot(cores=1), snapshot(1000, cpu_ms=1000, busy=(100, 20))
    assert between(after, before=before, threads=1).contended is True
    little = snapshot(1000, cpu_ms=1000, busy=(100, 10))
    assert between(little, before=before, threads=1).contended is False
    both = snapshot(1000, cpu_ms=1850, busy=(100, 100))
    assert between(both, before=before, threads=2).contended is True


def test_cores_are_counted_by_their_threads(tree, mask):
    place = "sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
    root = tree({place.format(0): "0-1\n", place.format(1): "0-1\n"})
    mask(0, 1, 2)
    assert conditions.take(root).cores == 2


def test_stolen_time_is_contention():
    found = between(snapshot(1000, cpu_ms=1800, busy=(90, 90), steal=(10, 10)))
    assert found.contended is True
    assert found.steal_share == pytest.approx(0.1)
    assert found.reasons == ("other virtual machines (steal) used 0.20 of a CPU (limit 0.05)",)


def test_a_short_block_is_not_judged_unless_it_is_plain():
    # One tick of 10 ms, or the error of one: the two are indistinguishable.
    found = between(snapshot(20, cpu_ms=10, busy=(1, 1)))
    assert found.contended is None
    assert "with an error of" in found.reasons[0]
    # 3 foreign ticks in 20 ms of 2 CPUs are beyond any error.
    assert between(snapshot(20, cpu_ms=10, busy=(2, 2))).contended is True


def test_short_blocks_together_can_be_judged():
    clean = [between(snapshot(20, cpu_ms=cpu_ms, busy=(2, 2))) for cpu_ms in (40, 50, 30, 40) * 200]
    assert {found.contended for found in clean} <= {None, True, False}
    assert between(snapshot(20, cpu_ms=40, busy=(2, 2))).contended is None
    found = conditions.together(clean)
    assert found.contended is False
    assert found.foreign_cpu_share == pytest.approx(0.0)
    assert found.totals.window_ms == pytest.approx(16_000)
    assert found.totals.error_ms == pytest.approx(clean[0].totals.error_ms * 800**0.5)
    assert conditions.together([]) is None


def test_a_quota_and_heat_are_reasons_of_their_own():
    before = snapshot(cgroup_throttled_ms=5.0, thermal_throttles=1, mhz=(2000.0,))
    after = snapshot(
        1000, 2000, (100, 100), cgroup_throttled_ms=45.0, thermal_throttles=3, mhz=(3000.0,)
    )
    found = between(after, before=before)
    assert found.contended is True
    assert found.throttled_ms == 40.0
    assert (found.start_mhz, found.end_mhz, found.mean_mhz) == (2000.0, 3000.0, 2500.0)
    assert found.reasons == (
        "the CPU quota throttled CPUs for 40.0 ms",
        "CPUs throttled by heat: 2x",
    )


def test_ticks_that_fall_badly_give_no_negative_share():
    found = between(snapshot(1000, cpu_ms=2005, busy=(100, 100)))
    assert found.foreign_cpu_share == 0
    assert found.totals.foreign_ms == pytest.approx(-5)


def test_conditions_are_json_values():
    values = attrs.asdict(between(snapshot(1000, 2000, (100, 100))))
    assert values["totals"]["capacity_ms"] == 2000
    assert values["contended"] is False


def test_this_machine_gives_a_snapshot_within_a_millisecond():
    conditions.take()
    costs = []
    for _ in range(30):
        started = time.perf_counter()
        taken = conditions.take()
        costs.append(time.perf_counter() - started)
    assert min(costs) < 1e-3
    assert set(taken.cpus) <= os.sched_getaffinity(0)


def test_the_module_imports_nothing_heavy():
    code = (
        "import sys, comparative_benchmark.analysis.machine.conditions; "
        "print(sorted({'numpy', 'psutil', 'rich', 'torch', 'jax'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_module_prints_what_a_snapshot_costs():
    command = [sys.executable, "-m", "comparative_benchmark.analysis.machine.conditions"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "a snapshot takes" in done.stdout
