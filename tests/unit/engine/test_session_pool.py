"""Workers that serve several models are kept only while they can be trusted."""

import os

import psutil
import pytest
from cbs_test_plugin import BACKEND

from comparative_benchmark.engine import session_pool
from comparative_benchmark.engine.messages import Called, Timeline
from comparative_benchmark.engine.session import SessionEnded
from comparative_benchmark.engine.session_pool import SessionPool, SharedWorkers
from comparative_benchmark.engine.settings import ProcessPlan, RunSettings
from comparative_benchmark.engine.trial import competitors_of
from openxla.benchmark.devices import HOST_CPU

SETTINGS = RunSettings(device=HOST_CPU)


@pytest.fixture
def pool(tmp_path):
    with SessionPool(folder=tmp_path / "pool", log_dir=tmp_path, label="lane") as opened:
        yield opened


def pid_of(session):
    return session.call(Called, function="os:getpid", arguments={}).value


def fails(session):
    with pytest.raises(SessionEnded, match="TypeError"):
        session.call(Called, function="os:getpid", arguments={"unknown": 1})


def test_a_worker_is_kept_for_its_name_and_ends_for_another(pool, tmp_path):
    with pool.get("a", SETTINGS, BACKEND) as session:
        first = pid_of(session)
    assert pool.has_served("a")
    with pool.get("a", SETTINGS, BACKEND) as session:
        assert pid_of(session) == first
    assert not pool.has_served("b")
    with pool.get("b", SETTINGS, BACKEND) as session:
        assert pid_of(session) != first
    assert not psutil.pid_exists(first)
    assert [path.name for path in pool.folder.iterdir()] == ["worker-2"]
    assert {path.name for path in tmp_path.glob("*.log")} == {"a.lane.1.log", "b.lane.2.log"}


def test_the_first_failure_is_the_last_of_a_worker(pool, tmp_path):
    session = pool.get("a", SETTINGS, BACKEND)
    first = pid_of(session)
    assert pool.log_file("a") == tmp_path / "a.lane.1.log"
    fails(session)
    assert pool.log_file("a") == tmp_path / "a.lane.2.log"
    assert pid_of(pool.get("a", SETTINGS, BACKEND)) != first
    assert not psutil.pid_exists(first)


def test_an_exception_of_the_caller_ends_the_worker(pool):
    session = pool.get("a", SETTINGS, BACKEND)
    first = pid_of(session)
    session.__exit__(KeyError, KeyError(), None)
    assert not psutil.pid_exists(first)
    assert not pool.has_served("a")


def test_a_pool_that_was_stopped_starts_nothing(pool):
    session = pool.get("a", SETTINGS, BACKEND)
    pool.stop()
    with pytest.raises(SessionEnded, match="SIGKILL"):
        pid_of(session)
    with pytest.raises(SessionEnded, match="the run was interrupted"):
        pool.get("a", SETTINGS, BACKEND)


def test_a_pool_leaves_neither_process_nor_folder(tmp_path):
    with SessionPool(folder=tmp_path / "pool", log_dir=tmp_path) as pool:
        pid = pid_of(pool.get("a", SETTINGS, BACKEND))
    assert not psutil.pid_exists(pid)
    assert list(pool.folder.iterdir()) == []


def test_without_processes_the_session_is_this_process(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "environ", dict(os.environ))
    settings = RunSettings(device=HOST_CPU, in_process=True)
    with SessionPool(folder=tmp_path / "pool", log_dir=tmp_path) as pool:
        session = pool.get("a", settings, BACKEND)
        assert pid_of(session) == os.getpid()
        assert pool.get("a", settings, BACKEND) is session


@pytest.mark.parametrize("free", [1 << 40, 1], ids=["much memory", "no memory"])
def test_the_longest_idle_worker_ends_if_memory_runs_low(monkeypatch, tmp_path, free):
    monkeypatch.setattr(session_pool, "default_limit_bytes", lambda: free)
    [competitor] = competitors_of(BACKEND, ["direct"], "cpu")

    def plan(replicate):
        return ProcessPlan(
            replicate=replicate,
            work_dir=tmp_path,
            cache_dir=tmp_path,
            log_file=tmp_path / "log",
            cold=False,
            track=Timeline().process("process"),
            framework="JAX",
        )

    pids = []
    with SharedWorkers(tmp_path / "logs") as workers:
        for replicate in range(3):
            with workers.open(SETTINGS, competitor, plan(replicate)) as session:
                pids.append(pid_of(session))
                # The busy worker never ends.
                alive = [pid for pid in pids if psutil.pid_exists(pid)]
                assert alive == (pids if free > 1 else pids[-1:])
    assert not any(map(psutil.pid_exists, pids))


def test_an_interrupted_run_kills_all_workers_before_it_cleans_up(tmp_path):
    calls = []

    class Pool:
        def stop(self):
            calls.append("stop")

        def empty(self):
            calls.append("empty")

    shared = SharedWorkers(tmp_path).__enter__()
    shared._pools["jax_xla:xla", 0] = [Pool(), Pool()]
    shared.__exit__(KeyboardInterrupt)
    assert calls == ["stop", "stop", "empty", "empty"]
