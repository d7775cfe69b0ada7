"""Profiles through a worker: taken, bounded, and harmless when they fail."""

import os
import signal

import attrs
import pytest
from cbs_test_plugin import BACKEND
from cbs_test_plugin.backend import NumpyBackend
from cbs_test_plugin.suite import ALL_BENCHMARKS
from session_support import bring_up

from comparative_benchmark.backends.api import Backend
from comparative_benchmark.engine import checks
from comparative_benchmark.engine.messages import Measured
from comparative_benchmark.engine.session import InProcessSession, Limits, Session
from openxla.benchmark.installation import ROOT_DIR_VARIABLE


@pytest.fixture
def variables(environment):
    return {ROOT_DIR_VARIABLE: environment[ROOT_DIR_VARIABLE]}


@pytest.fixture
def session(tmp_path, variables):
    """A worker that has loaded and compiled the toy."""
    log_file = tmp_path / "worker.log"
    with Session(limits=Limits(), log_file=log_file, environment=variables) as opened:
        _bring_up(opened, tmp_path)
        yield opened


def _bring_up(session, tmp_path, implementation=None):
    bring_up(
        session,
        ALL_BENCHMARKS[0],
        BACKEND,
        tmp_path,
        reference=BACKEND.reference,
        compiler="direct",
        implementation=implementation,
    )


class Silent(NumpyBackend):
    """Its profiler writes nothing."""

    def profile(self, directory, iterations):
        return []


class Elsewhere(NumpyBackend):
    """Its profiler returns a file in a wrong folder."""

    def profile(self, directory, iterations):
        return [directory.parent / "worker.log"]


class Without(NumpyBackend):
    """Has no profiler."""

    profile = Backend.profile


@pytest.mark.parametrize(
    ("latencies_ms", "iterations"),
    [
        ([0.01] * 9, 50),
        ([19.9], 50),
        ([25.0, 20.0, 1000.0], 40),
        ([333.0], 3),
        ([1e6], 3),
        ([0.0], 50),
        ([], 3),
    ],
)
def test_a_profile_takes_about_a_second(latencies_ms, iterations):
    assert checks.profiled_iterations(latencies_ms) == iterations


def test_a_profile_is_where_it_says(session, tmp_path):
    directory = tmp_path / "profiles" / "toy"
    profile = checks.take_profile(session, directory, [100.0])
    assert attrs.asdict(profile) == {
        "directory": str(directory),
        "files": ("profile.txt", "operators.json"),
        "iterations": 10,
        "error": None,
    }
    assert len((directory / "profile.txt").read_text().splitlines()) == 10


def test_a_worker_that_dies_while_profiled_costs_only_the_profile(session, tmp_path):
    os.kill(session._process.pid, signal.SIGKILL)
    profile = checks.take_profile(session, tmp_path / "profiles", [1.0])
    assert profile.files == ()
    assert "SIGKILL" in profile.error


def test_a_profiler_that_hangs_costs_only_the_profile(tmp_path, variables):
    limits = Limits(phase_deadlines_s={"profile": 0.5})
    with Session(limits=limits, log_file=tmp_path / "log", environment=variables) as session:
        _bring_up(session, tmp_path)
        os.kill(session._process.pid, signal.SIGSTOP)
        profile = checks.take_profile(session, tmp_path / "profiles", [1.0])
    assert profile.files == ()
    assert "phase profile took longer than 0.5 s" in profile.error


def test_a_directory_that_can_not_be_made_costs_only_the_profile(session, tmp_path):
    (tmp_path / "taken").write_text("a file")
    profile = checks.take_profile(session, tmp_path / "taken", [1.0])
    assert profile.files == ()
    assert "taken" in profile.error
    assert session.call(Measured, iterations=2).block.latencies_ms


@pytest.mark.parametrize(
    ("backend", "reason"),
    [
        (Silent, "the profiler wrote no files"),
        (Elsewhere, "did not write 'worker.log' to"),
        (Without, "the backend Without has no profiler"),
    ],
)
def test_a_profiler_that_fails_is_reported(tmp_path, monkeypatch, variables, backend, reason):
    monkeypatch.setenv(ROOT_DIR_VARIABLE, variables[ROOT_DIR_VARIABLE])
    (tmp_path / "worker.log").write_text("something")
    with InProcessSession(environment=variables) as session:
        _bring_up(session, tmp_path, f"{__name__}:{backend.__name__}")
        profile = checks.take_profile(session, tmp_path / "profiles", [1.0])
    assert profile.files == ()
    assert reason in profile.error
