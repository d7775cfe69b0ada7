"""Foreign commands: how they end, and that nothing they started outlives them."""

import os
import subprocess
import sys
import time

import psutil
import pytest

from comparative_benchmark.analysis.machine.other_processes import run_supervised

# Writes the pid of a daemon that leaves the process group.
_DAEMON = """
import subprocess, sys
path, last = sys.argv[1:]
sleep = [sys.executable, "-c", "import time; time.sleep(60)"]
child = subprocess.Popen(sleep, start_new_session=True)
open(path, "w").write(str(child.pid))
exec(last)
"""


def _is_running(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize(
    ("last", "code"),
    [
        ("", 0),
        ("raise SystemExit(3)", 3),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -9),
        ("import time; time.sleep(60)", None),
    ],
    ids=["ends", "fails", "is killed", "takes too long"],
)
def test_no_daemon_outlives_a_command(tmp_path, last, code):
    path = tmp_path / "pid"
    command = [sys.executable, "-c", _DAEMON, str(path), last]
    assert run_supervised(command, env=os.environ, timeout_s=5.0) == code
    deadline = time.monotonic() + 10
    while _is_running(pid := int(path.read_text())) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not _is_running(pid)


def test_a_command_may_clean_up_before_it_is_killed(tmp_path):
    script = f"trap 'echo cleaned > {tmp_path}/done; exit 1' TERM; sleep 60 & wait"
    command = ["sh", "-c", script]
    assert run_supervised(command, env=os.environ, timeout_s=1.0, grace_s=5.0) is None
    assert (tmp_path / "done").read_text() == "cleaned\n"


def test_further_arguments_are_those_of_popen(tmp_path):
    with (tmp_path / "log").open("w") as log:
        code = run_supervised(
            ["sh", "-c", "pwd; echo $NAME"],
            env={**os.environ, "NAME": "value"},
            cwd=tmp_path,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    assert code == 0
    assert (tmp_path / "log").read_text() == f"{tmp_path}\nvalue\n"
