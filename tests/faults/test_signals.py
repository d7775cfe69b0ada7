"""Signals that end a run: workers and their daemons end, and what is finished is kept."""

import json
import os
import signal
import subprocess
import time

import pytest
from tests_support import cbs_command, processes_of, run_cbs, wait_for

TOYS = "models/TOY_(NONE|BUSY|ORPHANS)/.+"
ARGUMENTS = (
    *("--suite", "cbs_test_plugin.suite", "--backend", "test_numpy", "--processes", "2"),
    *("--trial-budget", "1", "-name", TOYS),
)
# Output before the signal is sent, or a file that exists by then.
MOMENTS = {"preparing": "preparing", "after the first process": "first processes", "at once": None}
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1)


@pytest.fixture
def start(tmp_path, environment):
    """Starts a run whose processes, and nothing else, hold a marker."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    variables = {
        **environment,
        "CBS_ROOT_DIR": str(tmp_path / "root"),
        "CBS_TEST_MARKER": str(tmp_path),
        "TMPDIR": str(scratch),
    }
    started = []

    def start(*more, before=(), stderr=subprocess.PIPE):
        # A shell or nohup may ignore signals, and processes inherit that.
        process = subprocess.Popen(
            [
                "env",
                "--default-signal",
                *before,
                *cbs_command(*ARGUMENTS, output=tmp_path / "results.json"),
                *more,
            ],
            env=variables,
            cwd=tmp_path,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        return process

    start.variables = variables
    start.scratch = scratch
    yield start
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if process.stderr is not None:
            process.stderr.close()


def _stored(path):
    return json.loads(path.read_text())["benchmarks"] if path.exists() else []


def _cases():
    for moment in MOMENTS:
        for number in SIGNALS:
            shown = moment == "after the first process" and number == signal.SIGHUP
            marks = () if shown else (pytest.mark.nightly,)
            yield pytest.param(moment, number, marks=marks, id=f"{moment}-{number.name}")


@pytest.mark.parametrize(("moment", "number"), list(_cases()))
def test_a_run_that_a_signal_ends(start, tmp_path, moment, number):
    process = start()
    seen = ""
    if MOMENTS[moment] is None:
        time.sleep(0.4)
    else:
        for line in process.stderr:
            seen += line
            if MOMENTS[moment] in line:
                break
    os.kill(process.pid, number)
    _, rest = process.communicate(timeout=60)
    if MOMENTS[moment] is None:
        # So early that Python itself may still be starting.
        assert process.returncode in (130, -number)
    else:
        assert process.returncode == 130, seen + rest
        assert "interrupted; to continue, run\n  " in rest
        assert "--resume" in rest
    assert "Traceback" not in seen + rest
    wait_for(lambda: processes_of(str(tmp_path)) == [], "workers and daemons to end", 10)
    assert list(start.scratch.glob("cbs-*")) == []
    before = _stored(tmp_path / "results.json")
    done = run_cbs(*ARGUMENTS, "--resume", directory=tmp_path, environment=start.variables)
    after = _stored(tmp_path / "results.json")
    assert before == after[: len(before)]
    models = [record["definition"]["model"] for record in after]
    assert sorted(models) == ["TOY_BUSY", "TOY_NONE", "TOY_ORPHANS"], done.err


def test_a_terminal_that_is_gone_leaves_the_command_in_a_file(start, tmp_path):
    read, write = os.pipe()
    process = start(stderr=write)
    os.close(write)
    with os.fdopen(read) as pipe:
        for line in pipe:
            if "first processes" in line:
                break
    os.kill(process.pid, signal.SIGHUP)
    process.wait(timeout=60)
    assert process.returncode == 130
    [kept] = tmp_path.glob("*.interrupted.txt")
    assert "--resume" in kept.read_text()
    wait_for(lambda: processes_of(str(tmp_path)) == [], "workers and daemons to end", 10)


@pytest.mark.nightly
def test_nohup_goes_on_after_the_terminal_is_gone(start, tmp_path):
    process = start(before=("nohup",))
    for line in process.stderr:
        if "first processes" in line:
            break
    os.kill(process.pid, signal.SIGHUP)
    process.communicate(timeout=120)
    assert len(_stored(tmp_path / "results.json")) == 3


@pytest.mark.nightly
def test_a_killed_run_s_folders_go_with_the_next_run(start, tmp_path):
    process = start()
    for line in process.stderr:
        if "first processes" in line:
            break
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    left = list(start.scratch.glob("cbs-locked-*"))
    assert left
    run_cbs(*ARGUMENTS, "--resume", directory=tmp_path, environment=start.variables)
    assert [path for path in left if path.exists()] == []
    # No process remained to end the processes that the model detached.
    for pid in processes_of(str(tmp_path)):
        os.kill(pid, signal.SIGKILL)


def test_two_that_resume_one_file_store_each_case_once(start, tmp_path):
    first = start()
    for line in first.stderr:
        if "first processes" in line:
            break
    os.kill(first.pid, signal.SIGTERM)
    first.communicate(timeout=60)
    both = [start("--resume"), start("--resume")]
    for process in both:
        _, err = process.communicate(timeout=120)
        assert "Traceback" not in err
    stored = _stored(tmp_path / "results.json")
    assert sorted(r["definition"]["model"] for r in stored) == [
        "TOY_BUSY",
        "TOY_NONE",
        "TOY_ORPHANS",
    ]
