"""Races on the command line that are interrupted and resumed."""

import json
import os
import re
import signal
import subprocess

import pytest
from tests_support import cbs_command, processes_of, run_cbs, wait_for

from comparative_benchmark.results.journal import folder_of

RACE = (
    *("--suite", "cbs_test_plugin.suite", "--backend", "test_numpy", "--processes", "2"),
    *("--precision", "0.5"),
    *("-name", "models/TOY_(NONE|BUSY|RAISES)/.+"),
)


def lines_of(output):
    """The processes in the journal of the only interrupted run."""
    [path] = folder_of(output).glob("*.jsonl")
    return [json.loads(line) for line in path.read_bytes().splitlines(keepends=True)[1:]
            if line.endswith(b"\n")]  # fmt: skip


def finished(output):
    """The lines of processes that have ended."""
    return [line for line in lines_of(output) if not line["partial"]]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_what_has_ended_is_kept_and_gone_on_from(tmp_path, environment, number):
    output = tmp_path / "results.json"
    run = subprocess.Popen(
        cbs_command(*RACE, output=output),
        env={**environment, "CBS_TEST_MARKER": str(tmp_path)},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )

    def have_ended():
        return folder_of(output).exists() and len(finished(output)) >= 3

    try:
        wait_for(have_ended, "the first replicate")
        os.kill(run.pid, number)
        _, err = run.communicate(timeout=60)
    finally:
        run.kill()
    wait_for(lambda: processes_of(str(tmp_path)) == [], "the workers to leave")
    kept = finished(output)
    if number != signal.SIGKILL:
        assert run.returncode == 130
        assert f"{len(finished(output))} finished processes" in err
        assert "--resume completes their trials" in err
        assert "Traceback" not in err
    again = run_cbs(*RACE, "--resume", directory=tmp_path, environment=environment)
    assert re.search(r"\d+ process(es)? from an interrupted run", again.err)
    assert {name.split()[0]: status for name, status in again.statuses.items()} in (
        # A busy machine can make either unsteady; this is reported, and its processes are kept.
        {"TOY_NONE": none, "TOY_BUSY": busy, "TOY_RAISES": "failed"}
        for none in ("ok", "unsteady")
        for busy in ("ok", "unsteady")
    )
    measured = [
        process["blocks"][0]["latencies_ms"]
        for record in again.document["benchmarks"]
        for process in record["metrics"]["framework_level"].get("processes", ())
        if process["blocks"]
    ]
    before = [
        line["process"]["blocks"][0]["latencies_ms"] for line in kept if line["process"]["blocks"]
    ]
    assert len(measured) == 4 or "unsteady" in again.statuses.values()
    assert all(latencies in measured for latencies in before)
    assert not folder_of(output).exists()
