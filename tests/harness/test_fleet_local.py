"""Fleets of one machine: the whole life of a campaign, with submitters and runners that die."""

import os
import signal
from collections import Counter

import pytest
from fleet_support import TinyFleet
from tests_support import processes_of, wait_for

pytestmark = pytest.mark.slow


@pytest.fixture
def fleet(tmp_path):
    """Makes fleets, and checks that nothing of them is left."""
    variables = {"TMPDIR": str(tmp_path)}

    def make(**options):
        return TinyFleet(tmp_path, "local", variables=variables, **options)

    yield make
    try:
        wait_for(lambda: not processes_of(str(tmp_path)), "the end of the runner")
    finally:
        for pid in processes_of(str(tmp_path)):
            os.kill(pid, signal.SIGKILL)


def keys(runs):
    """Keys of the jobs of these runs."""
    return [run["allocation"]["job"] for run in runs]


def test_all_jobs_are_measured_once(fleet):
    tiny = fleet(jobs=3)
    assert tiny.cbs("submit").out == "submitted: 3 jobs in 3 batches\n"
    again = tiny.cbs("submit")
    assert again.out == "submitted: 0 jobs in 0 batches\n"
    tiny.wait_for_results(3)
    runs = tiny.results()
    assert len(set(keys(runs))) == 3
    assert sorted(tiny.started) == sorted(keys(runs))
    assert tiny.results() == runs
    assert tiny.cbs("status").code == 0
    assert {run["allocation"]["exclusive"] for run in runs} == {None}


def test_the_submitter_and_the_runner_die(fleet):
    """Twelve jobs are in one file, none twice, and the lost one shows its second attempt."""
    tiny = fleet(jobs=12, seconds=60)
    submitter = tiny.start("submit")
    wait_for(lambda: tiny.started, "the first job")
    submitter.kill()
    submitter.communicate()
    # The machine goes down: the runner and all processes of the batch.
    for pid in processes_of(str(tiny.folder)):
        os.kill(pid, signal.SIGKILL)
    tiny.take(all=0)
    first = tiny.started[0]
    tiny.forget_queue()
    assert tiny.states()[first]["state"] == "lost"
    tiny.expire_claims()
    # The status has started another runner for the batches in the queue.
    tiny.cbs("resume")
    tiny.wait_for_results(12)
    runs = tiny.results()
    assert len(set(keys(runs))) == len(runs) == 12
    attempts = {run["allocation"]["job"]: run["allocation"]["attempt"] for run in runs}
    assert {key for key in attempts if attempts[key]} == {first}
    assert Counter(tiny.started) == {key: 1 + (key == first) for key in attempts}
    assert tiny.cbs("status").code == 0


def test_two_submitters(fleet):
    tiny = fleet(jobs=6, seconds=0)
    both = [tiny.start("submit") for _ in range(2)]
    outputs = [process.communicate(timeout=120) for process in both]
    assert sum(int(out.split()[1]) for out, _ in outputs) == 6, outputs
    tiny.wait_for_results(6)
    runs = tiny.results()
    assert sorted(tiny.started) == sorted(keys(runs)) == sorted(set(keys(runs)))


def test_cancelled_jobs_start_again_if_asked(fleet):
    tiny = fleet(jobs=2, seconds=60)
    tiny.cbs("submit")
    wait_for(lambda: tiny.started, "the first job")
    assert tiny.cbs("cancel").out == "cancelled: 2 jobs\n"
    wait_for(lambda: not processes_of(str(tiny.folder)), "the end of the runner")
    assert tiny.count("cancelled") == 2
    tiny.take(all=0)
    assert tiny.cbs("resume").out == "submitted: 2 jobs in 2 batches\n"
    tiny.wait_for_results(2)


def test_bad_input_is_one_line(fleet):
    """A class that no node offers, and an environment that does not exist; nothing is claimed."""
    tiny = fleet(jobs=1, classes="""
[[class]]
name = "any"
environment = "/nowhere"
[[class]]
name = "huge"
requires = "+huge"
""")  # fmt: skip
    done = tiny.cbs("submit")
    assert done.code == 1
    assert done.lines == [
        "submitted: 0 jobs in 0 batches",
        "unsupported: class huge: no node offers +huge",
        "refused: class any: environment /nowhere has no interpreter /nowhere",
    ]
    assert not tiny.claims
