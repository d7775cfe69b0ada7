"""A function in a separate process: its answer, its phases, and all the ways in which it ends."""

import contextlib
import os

import pytest

from comparative_benchmark.backends import child_process
from comparative_benchmark.backends.api import UnsupportedError

FUNCTIONS = """
import os, signal, sys, time
from comparative_benchmark.backends.api import UnsupportedError

def double(channel, value):
    print("what a library prints is not a message")
    with channel.phase("trace"):
        time.sleep(0.02)
    for _ in range(2):
        with channel.phase("lower"):
            pass
    return {"value": 2 * value, "gpus": os.environ["CUDA_VISIBLE_DEVICES"], "first": sys.path[0]}

def fail(channel, kind):
    with channel.phase("lower"):
        kinds = {"unsupported": UnsupportedError, "memory": MemoryError, "other": KeyError}
        raise kinds[kind]("why")

def die(channel, number, promised):
    with channel.phase("compile"):
        if promised:
            with channel.unsupported_if_killed("it ends the process (signal {signal})"):
                os.kill(os.getpid(), number)
        os.kill(os.getpid(), number)

def survive(channel):
    with channel.unsupported_if_killed("never"):
        pass
    os.abort()

def leave(channel):
    os._exit(7)
"""


@pytest.fixture
def call(tmp_path, monkeypatch):
    """Calls a function of `FUNCTIONS`; records the phases that were entered and left."""
    (tmp_path / "functions.py").write_text(FUNCTIONS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.chdir(tmp_path)
    entered, left = [], []

    @contextlib.contextmanager
    def phase(name):
        entered.append(name)
        yield
        left.append(name)

    def run(function, **arguments):
        return child_process.call(f"functions:{function}", arguments, phase, name="the child")

    run.entered, run.left = entered, left
    return run


def test_a_function_answers_and_its_phases_are_timed_on_both_sides(call):
    answer, own_times_ms = call("double", value=21)
    assert answer["value"] == 42
    assert answer["gpus"] == ""
    assert call.entered == call.left == ["trace", "lower", "lower"]
    assert own_times_ms["trace"] >= 20
    assert 0 <= own_times_ms["lower"] < own_times_ms["trace"]


def test_the_current_directory_is_not_on_the_path(call, tmp_path, monkeypatch):
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "attrs.py").write_text("raise SystemExit('taken from the current directory')")
    monkeypatch.chdir(folder)
    answer, _ = call("double", value=1)
    assert answer["first"] not in ("", str(folder))


@pytest.mark.parametrize(
    ("kind", "error", "message"),
    [
        ("unsupported", UnsupportedError, "^why\n"),
        ("memory", MemoryError, "MemoryError: why"),
        ("other", RuntimeError, "KeyError: 'why'"),
    ],
)
def test_what_it_raises_is_raised_in_the_phase_where_it_failed(call, kind, error, message):
    with pytest.raises(error, match=message) as caught:
        call("fail", kind=kind)
    assert any("functions.py" in note for note in caught.value.__notes__)
    assert (call.entered, call.left) == (["lower"], [])


@pytest.mark.parametrize(
    ("number", "promised", "error", "message"),
    [
        (6, True, UnsupportedError, r"it ends the process \(signal 6\)"),
        (6, False, RuntimeError, "the child was killed by SIGABRT; see the end of the log file"),
        (9, False, MemoryError, "probably because memory ran out"),
        (9, True, MemoryError, "probably because memory ran out"),
        (40, False, RuntimeError, "the child was killed by signal 40"),
    ],
)
def test_a_signal_is_an_answer_too(call, number, promised, error, message):
    with pytest.raises(error, match=message):
        call("die", number=number, promised=promised)
    assert call.entered == ["compile"]


def test_a_promise_ends_with_its_block(call):
    with pytest.raises(RuntimeError, match="SIGABRT"):
        call("survive")


def test_a_process_that_just_ends_is_reported(call, monkeypatch):
    with pytest.raises(RuntimeError, match="the child ended with exit code 7"):
        call("leave")
    monkeypatch.setattr(child_process, "_MODULE", "comparative_benchmark.no_such_module")
    with pytest.raises(RuntimeError, match="the child ended with exit code 1"):
        call("double", value=1)
