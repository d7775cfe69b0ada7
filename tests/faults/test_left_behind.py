"""The next process removes the remains of a killed one, and keeps files of live processes."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from openxla.benchmark import files

_HOLD = """
import sys, time
from openxla.benchmark.files import temporary_folder
with temporary_folder("race") as folder:
    print(folder, flush=True)
    time.sleep(600)
"""


@pytest.fixture
def holder(tmp_path):
    """A process that holds a folder."""
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", _HOLD],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
    )
    folder = Path(process.stdout.readline().strip())
    (folder / "file").touch()
    yield process, folder
    process.kill()
    process.wait()
    process.stdout.close()


def _age(folder):
    long_ago = time.time() - 7200
    os.utime(folder, (long_ago, long_ago))


def test_a_folder_is_its_owners_until_that_is_killed(holder, tmp_path):
    process, folder = holder
    assert files.remove_left(tmp_path) == []
    assert folder.is_dir()
    process.kill()
    process.wait()
    assert files.remove_left(tmp_path) == [folder]
    assert not folder.exists()


def test_the_next_run_removes_it(monkeypatch, tmp_path):
    left = tmp_path / f"{files.TEMPORARY_PREFIX}race-left"
    left.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with files.temporary_folder("parity") as folder:
        assert Path(folder).parent == tmp_path
        assert not left.exists()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("clock_s", [-500.0, 0.0, 500.0])
def test_what_was_just_made_stays_if_the_clock_jumps(monkeypatch, tmp_path, clock_s):
    young = tmp_path / "cbs-new-race-young"
    young.mkdir()
    now = time.time() + clock_s
    monkeypatch.setattr(files.time, "time", lambda: now)
    assert files.remove_left(tmp_path) == []
    assert young.is_dir()


def test_nothing_else_is_touched(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / f"{files.TEMPORARY_PREFIX}link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / f"{files.TEMPORARY_PREFIX}file").touch()
    (tmp_path / "cbs-race-of-an-older-version").mkdir()
    for path in tmp_path.iterdir():
        _age(path)
    assert files.remove_left(tmp_path) == []
    assert len(list(tmp_path.iterdir())) == 4
