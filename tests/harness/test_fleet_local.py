"""Fleets of one machine: the whole life of a campaign, with submitters and runners that die."""

import os
import signal

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
    left = processes_of(str(tmp_path))
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left


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


def test_a_killed_runner_loses_one_batch(fleet):
    """Its batch is started again; the others wait in the queue."""
    tiny = fleet(jobs=3, seconds=60)
    tiny.cbs("submit")
    wait_for(lambda: tiny.started, "the first job")
    for pid in processes_of(str(tiny.folder)):
        os.kill(pid, signal.SIGKILL)
    tiny.take(all=0.1)
    first = tiny.started[0]
    # This starts another runner.
    tiny.cbs("status")
    tiny.wait_for_results(2)
    assert tiny.states()[first]["state"] == "lost"
    assert tiny.cbs("resume").out == "submitted: 1 job in 1 batch\n"
    tiny.wait_for_results(3)
    runs = tiny.results()
    assert len(set(keys(runs))) == len(runs) == 3
    assert {run["allocation"]["job"]: run["allocation"]["attempt"] for run in runs}[first] == 1
    assert sum(run["allocation"]["attempt"] for run in runs) == 1
