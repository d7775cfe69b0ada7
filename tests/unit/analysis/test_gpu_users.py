"""Foreign processes on a GPU: from a /proc of files, and from this machine's."""

import os
import signal
import subprocess
import sys
import time

import pytest

from comparative_benchmark.analysis.machine import gpu_state
from comparative_benchmark.analysis.machine.gpu_state import SESSION_VARIABLE, foreign

ME, PARENT = os.getpid(), 90
MARK = f"PATH=/bin\0{SESSION_VARIABLE}=abc\0"
PLAIN = "PATH=/bin\0HOME=/root\0"


@pytest.fixture
def proc(tmp_path, monkeypatch):
    """Makes a /proc of processes: number -> (environment, parent)."""
    monkeypatch.setattr(os, "getppid", lambda: PARENT)

    def make(processes):
        for pid, (environment, parent) in processes.items():
            folder = tmp_path / str(pid)
            folder.mkdir()
            rest = " ".join(["0"] * 17)
            (folder / "stat").write_text(f"{pid} (a) b) S {parent} {rest} {pid}77 0 0\n")
            if environment is not None:
                (folder / "environ").write_text(environment)
        return tmp_path

    return make


@pytest.mark.parametrize(
    ("other", "found"),
    [
        ((MARK, PARENT), ()),  # another worker of this run, which is stopped
        ((PLAIN, PARENT), (7,)),
        ((PLAIN, 1), (7,)),
        ((MARK, 50), (7,)),  # a worker of another run
        ((MARK, 60), ()),  # a child of a worker of this run
        ((MARK, 1), None),  # left behind by some worker
        (("", PARENT), None),  # about to end
        ((None, PARENT), None),
    ],
)
def test_a_process_next_to_ours(proc, other, found):
    others = {50: (PLAIN, 1), 60: (MARK, PARENT), PARENT: (PLAIN, 1)}
    assert foreign((ME, 7), proc({7: other, **others})) == found


def test_nobody_is_accused_by_numbers_of_another_namespace(proc):
    files = proc({7: (PLAIN, 1)})
    assert foreign((7,), files) is None
    assert foreign((), files) is None
    assert foreign(None, files) is None
    assert foreign((ME, 8), files) is None  # not to be seen from here
    assert foreign((ME,), files) == ()


def test_one_that_is_foreign_for_certain_is_enough(proc):
    assert foreign((ME, 7, 8), proc({7: (PLAIN, 1)})) == (7,)


def test_a_later_process_of_the_same_number_is_looked_at_again(proc):
    root = proc({7: (MARK, PARENT), PARENT: (PLAIN, 1)})
    assert foreign((ME, 7), root) == ()
    stat = root / "7" / "stat"
    (root / "7" / "environ").write_text(PLAIN)
    assert foreign((ME, 7), root) == ()
    stat.write_text(stat.read_text().replace("777", "888"))
    assert foreign((ME, 7), root) == (7,)


@pytest.mark.parametrize(("owner", "found"), [(1, (7,)), (0, None)])
def test_a_process_of_another_user_is_not_ours(proc, monkeypatch, owner, found):
    root = proc({7: (PLAIN, 1)})
    real = type(root).read_bytes

    def read_bytes(path):
        if path.name == "environ":
            raise PermissionError(path)
        return real(path)

    monkeypatch.setattr(type(root), "read_bytes", read_bytes)
    monkeypatch.setattr(gpu_state, "_owner", lambda *_: os.getuid() + owner)
    assert foreign((ME, 7), root) == found


@pytest.mark.parametrize(("parent", "found"), [(PARENT, ()), (50, (7,)), (1, None)])
def test_isolated_workers_are_known_by_their_ancestors(proc, monkeypatch, parent, found):
    root = proc({7: (None, parent), 50: (PLAIN, 1), PARENT: (PLAIN, 1)})

    def read_bytes(path):
        raise PermissionError(path)

    monkeypatch.setattr(type(root), "read_bytes", read_bytes)
    monkeypatch.setattr(gpu_state, "_owner", lambda *_: os.getuid())
    assert foreign((ME, 7), root) == found


@pytest.mark.parametrize(("marked", "is_foreign"), [(True, False), (False, True)])
def test_real_processes_stopped_as_the_workers_of_a_race_are(marked, is_foreign, monkeypatch):
    variables = {**os.environ, SESSION_VARIABLE: "abc"} if marked else dict(os.environ)
    # The worker's parent is this process's parent: here, this one plays the parent.
    monkeypatch.setattr(os, "getppid", lambda: ME)
    code = "import time; print('up', flush=True); time.sleep(60)"
    with subprocess.Popen(
        [sys.executable, "-c", code], env=variables, stdout=subprocess.PIPE
    ) as process:
        try:
            assert process.stdout.readline() == b"up\n"
            process.send_signal(signal.SIGSTOP)
            time.sleep(0.01)
            due = (process.pid,) if is_foreign else ()
            assert foreign((ME, process.pid)) == due
        finally:
            process.kill()
