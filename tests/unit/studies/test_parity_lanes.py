"""How CPUs and memory are divided among cells that run side by side."""

import attrs
import pytest

from comparative_benchmark.engine.session import Limits
from comparative_benchmark.engine.settings import RunSettings
from comparative_benchmark.studies.parity import runner
from openxla.benchmark import devices

GIB = 2**30


@pytest.fixture
def machine(monkeypatch):
    """A machine of given CPUs and memory."""

    def make(cpus, memory_gib):
        monkeypatch.setattr(runner.os, "sched_getaffinity", lambda pid: set(range(10, 10 + cpus)))
        monkeypatch.setattr(runner, "usable_cpus", lambda: cpus)
        monkeypatch.setattr(runner, "default_limit_bytes", lambda: memory_gib * GIB)

    return make


@pytest.mark.parametrize(
    ("cpus", "memory_gib", "accelerator", "asked_gib", "expected"),
    [
        (2, 22, "cpu", None, 2),
        (16, 22, "cpu", None, 5),
        (16, 1, "cpu", None, 1),
        (16, 22, "cpu", 10, 2),
        (16, 100, "gpu", None, 1),
    ],
)
def test_as_many_as_have_cpu_and_memory(
    machine, cpus, memory_gib, accelerator, asked_gib, expected
):
    machine(cpus, memory_gib)
    asked = asked_gib * GIB if asked_gib else None
    assert runner.default_jobs(accelerator, asked) == expected


def settings(threads, memory_gib=20):
    limits = Limits(memory_bytes=memory_gib * GIB)
    return RunSettings(device=devices.HOST_CPU, threads=threads, limits=limits)


def test_one_alone_has_the_machine(machine):
    machine(4, 20)
    whole = settings(4)
    assert runner.shares(whole, 1, None) == [whole]


def test_lanes_have_cpus_of_their_own_and_equal_shares(machine):
    machine(5, 20)
    found = runner.shares(settings(5), 2, None)
    assert [share.cpus for share in found] == [(10, 11), (12, 13)]
    assert [share.threads for share in found] == [2, 2]
    assert [share.limits.memory_bytes for share in found] == [10 * GIB] * 2


def test_what_was_asked_for_holds_for_each_worker(machine):
    machine(8, 20)
    found = runner.shares(settings(1, memory_gib=3), 2, 3 * GIB)
    assert [share.threads for share in found] == [1, 1]
    assert [share.limits.memory_bytes for share in found] == [3 * GIB] * 2


def test_more_lanes_than_cpus_are_not_pinned(machine):
    machine(2, 20)
    found = runner.shares(settings(2), 3, None)
    assert [(share.cpus, share.threads) for share in found] == [((), 1)] * 3


@attrs.define
class FakeLane:
    """Prints its argument; fails on 'bad'."""

    stopped: bool = False
    closed: bool = False

    def run(self, cell, trial):
        if cell == "bad":
            raise OSError("the disk is full")
        return f"{cell} {trial}"

    def stop(self):
        self.stopped = True

    def close(self):
        self.closed = True


def test_every_job_is_finished_once_and_lanes_are_closed():
    found = []
    team = [FakeLane(), FakeLane(), FakeLane()]
    batches = [[("a", 1), ("b", 2)], [("c", 3)]]
    runner.run_all(team, batches, lambda job, result: found.append((job, result)))
    assert sorted(found) == [(("a", 1), "a 1"), (("b", 2), "b 2"), (("c", 3), "c 3")]
    assert [lane.closed for lane in team] == [True] * 3
    assert not any(lane.stopped for lane in team)


def test_what_goes_wrong_in_one_lane_stops_all():
    team = [FakeLane(), FakeLane()]
    with pytest.raises(OSError, match="the disk is full"):
        runner.run_all(team, [[("bad", 1)], [("a", 1)]], lambda job, result: None)
    assert all(lane.stopped and lane.closed for lane in team)
