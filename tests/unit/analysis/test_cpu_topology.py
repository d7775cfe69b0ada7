"""Threads of one core, and how many threads that makes by default, on made-up machines."""

import pytest

from comparative_benchmark.analysis.machine import host
from comparative_benchmark.backends import host_settings
from comparative_benchmark.engine.settings import settings_of
from openxla.benchmark.devices import HOST_CPU

NEIGHBOURS = ["0-1", "0-1", "2-3", "2-3"]
HALVES = ["0,2", "1,3", "0,2", "1,3"]
ALONE = ["0", "1", "2", "3"]


@pytest.fixture
def machine(tmp_path):
    """Makes a `sys` that lists the threads of each CPU's core."""

    def make(siblings):
        for cpu, told in enumerate(siblings):
            file = tmp_path / f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"
            file.parent.mkdir(parents=True)
            file.write_text(f"{told}\n")
        return tmp_path

    return make


@pytest.mark.parametrize(
    ("siblings", "usable", "threads"),
    [
        (NEIGHBOURS, (0, 1, 2, 3), 2),
        (HALVES, (0, 1, 2, 3), 2),
        (HALVES, (0, 2), 1),
        (HALVES, (0, 1), 2),
        (NEIGHBOURS, (1,), 1),
        (ALONE, (0, 1, 2, 3), 4),
    ],
)
def test_a_thread_for_each_core_among_the_usable_cpus(machine, siblings, usable, threads):
    assert host.default_threads(usable, machine(siblings)) == (threads, "physical cores")


def test_a_thread_for_each_cpu_where_nothing_is_told_of_one(machine, tmp_path):
    assert host.default_threads((0, 1, 2), tmp_path) == (3, "usable CPUs")
    assert host.default_threads((0, 1, 4), machine(NEIGHBOURS)) == (3, "usable CPUs")


def test_without_pinned_cpus_those_of_the_process_count(machine, monkeypatch):
    monkeypatch.setattr(host_settings.os, "sched_getaffinity", lambda pid: {1, 3})
    assert host.default_threads(root=machine(HALVES)).number == 1


@pytest.mark.parametrize(
    ("siblings", "order"),
    [(NEIGHBOURS, [0, 2, 1, 3]), (HALVES, [0, 1, 2, 3]), (ALONE, [0, 1, 2, 3]), ([], [0, 1, 2, 3])],
)
def test_cpus_are_taken_of_all_cores_before_a_second_of_any(machine, siblings, order):
    assert host_settings.spread([3, 2, 1, 0], machine(siblings)) == order


@pytest.mark.parametrize(
    ("asked", "expected"), [(None, (1, "physical cores")), (7, (7, "--threads"))]
)
def test_the_settings_of_a_run_say_which_rule_gave_the_threads(asked, expected, monkeypatch):
    monkeypatch.setattr(host_settings, "cores", lambda found, root: [list(found)])
    settings = settings_of(HOST_CPU, timeout_s=1.0, memory_bytes=None, threads=asked, cpus=(0, 1))
    assert (settings.threads, settings.threads_from) == expected
    described = host.describe(threads=settings.threads, threads_from=settings.threads_from)
    assert described["threads_from"] == expected[1]
