"""Runs are killed at random moments several times; `--resume` finishes them without losses."""

import json
import os
import random
import signal
import subprocess

import pytest
from tests_support import cbs_command, processes_of, run_cbs, wait_for

CASES = {
    **dict.fromkeys(("NONE", "ORPHANS", "BUSY"), "ok"),
    **dict.fromkeys(("RAISES", "ARITY"), "failed"),
    "NAN": "wrong_output",
    "EXIT_CODE": "crashed",
}
TOYS = (
    *("--suite", "cbs_test_plugin.suite", "--backend", "test_numpy", "--processes", "2"),
    *("--trial-budget", "1", "-name"),
)
ROUNDS = 6


def _kept(output):
    """Returns the records of a results file by case; the file may be missing, but never broken.

    On a busy machine, a correct trial is sometimes unsteady; it counts as measured and kept.
    """
    if not output.exists():
        return {}
    return {
        record["definition"]["model"]: record["status"].replace("unsteady", "ok")
        for record in json.loads(output.read_text())["benchmarks"]
    }


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGTERM,
        signal.SIGKILL,
        *(pytest.param(n, marks=pytest.mark.nightly) for n in (signal.SIGHUP, signal.SIGQUIT)),
    ],
)
def test_a_run_that_is_ended_at_random_loses_nothing(tmp_path, environment, number):
    # An empty root, so that the creation of artifacts is interrupted too.
    root = str(tmp_path / "root")
    environment = {**environment, "CBS_ROOT_DIR": root, "CBS_TEST_MARKER": str(tmp_path)}
    # After SIGKILL, no process remains that could end the processes that a model detached.
    due = {n: s for n, s in CASES.items() if n != "ORPHANS" or number != signal.SIGKILL}
    arguments = (*TOYS, f"models/TOY_({'|'.join(due)})/.+")
    output, moments = tmp_path / "results.json", random.Random(int(number))
    kept: dict[str, str] = {}
    interrupted = 0
    for _ in range(ROUNDS):
        process = subprocess.Popen(
            [*cbs_command(*arguments, output=output), "--resume"],
            env=environment,
            cwd=tmp_path,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            process.wait(timeout=moments.uniform(0.2, 4))
        except subprocess.TimeoutExpired:
            os.kill(process.pid, number)
            interrupted += 1
        _, said = process.communicate(timeout=60)
        assert "Traceback" not in said, said
        before, kept = kept, _kept(output)
        # --resume may measure a failure again, and it fails again.
        assert before.items() <= kept.items()
        wait_for(lambda: processes_of(str(tmp_path)) == [], "the workers to leave")
    assert interrupted
    run = run_cbs(*arguments, "--resume", directory=tmp_path, environment=environment)
    ended = _kept(run.output)
    assert kept.items() <= ended.items()
    assert ended == {f"TOY_{name}": status for name, status in due.items()}
    # The folders of results and artifacts contain no partial files.
    assert not list(tmp_path.rglob(".unfinished-*"))
