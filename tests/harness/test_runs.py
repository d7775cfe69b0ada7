"""Runs as a whole: interruption, resuming, artifacts, in-process."""

import os
import re
import signal
import subprocess

import pytest
from tests_support import cbs_command, processes_of, python_path, wait_for

TOYS = ("--suite", "cbs_test_plugin.suite", "--backend", "test_numpy", "-w", "1", "-iter", "3")
ONE = (*TOYS, "-name", "models/TOY_NONE/.+")
# For tests of the parent: these need no worker.
IN_PROCESS = (*ONE, "--run-in-process")
# The first model makes the truth. The second one writes a file, then hangs.
HANGING_SUITE = """
import pathlib
import time

import attrs

from cbs_test_plugin import model, suite
from openxla.benchmark import def_types


class Hang(model.ToyModel):
    def forward(self, x):
        pathlib.Path(__file__).with_name("hangs").touch()
        time.sleep(3600)


def create_model(*, fault, **parameters):
    return Hang(**parameters)


good = suite.MODELS[0]
implementation = attrs.evolve(good.model_impl, name="HANG", module_path="hanging_suite")
ALL_BENCHMARKS = [
    def_types.BenchmarkCase.build(model=model, input_data=suite.ALL_BENCHMARKS[0].input_data)
    for model in (good, attrs.evolve(good, name="HANG", model_impl=implementation))
]
"""


@pytest.fixture
def hanging_run(tmp_path, environment):
    """A run whose second trial hangs; its first one is done."""
    (tmp_path / "hanging_suite.py").write_text(HANGING_SUITE)
    output = tmp_path / "results.json"
    variables = {"PYTHONPATH": python_path(tmp_path), "CBS_TEST_MARKER": str(tmp_path)}
    selected = ("--suite", "hanging_suite", *TOYS[2:], "-name", "models/(TOY_NONE|HANG)/.+")
    process = subprocess.Popen(
        cbs_command(*selected, output=output),
        env={**environment, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with process:
        try:
            wait_for((tmp_path / "hangs").exists, "the second model to hang")
            yield process, output
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupt_ends_workers_and_keeps_results(hanging_run, tmp_path, number):
    process, output = hanging_run
    os.kill(process.pid, number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted; to continue, run" in err
    assert "--resume" in err
    assert "Traceback" not in err
    assert '"ok"' in output.read_text()
    wait_for(lambda: processes_of(str(tmp_path)) == [], "the workers to be gone")


def test_workers_leave_when_their_parent_is_killed(hanging_run, tmp_path):
    process, _ = hanging_run
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=60)
    wait_for(lambda: processes_of(str(tmp_path)) == [], "the workers to leave")


def test_resume_measures_again_what_held_its_outputs_otherwise(cbs_run):
    def made(*arguments):
        run = cbs_run(*IN_PROCESS, *arguments)
        return [
            (record["status"], record["definition"].get("outputs"), program.get("outputs"))
            for record in run.document["benchmarks"]
            for metrics in record["metrics"].values()
            for program in (metrics["program"],)
        ]

    usual, asked = ("ok", None, "allocated"), ("ok", "allocated", "allocated")
    assert made() == [usual]
    assert made("--resume", "--outputs", "allocated") == [usual, asked]
    assert made("--resume", "--outputs", "allocated") == [usual, asked]
    assert made("--resume", "--outputs", "bound")[2][:2] == ("unsupported", "bound")


def test_resume_runs_only_what_is_not_ok(cbs_run):
    first = cbs_run(*TOYS, "-name", "models/TOY_(NONE|RAISES)/.+")
    again = cbs_run(*TOYS, "-name", "models/TOY_(NONE|RAISES|FLOODS)/.+", "--resume")
    models = [r["definition"]["model"] for r in again.document["benchmarks"]]
    assert first.code == 1
    assert models == ["TOY_NONE", "TOY_RAISES", "TOY_RAISES", "TOY_FLOODS"]
    assert "[1/3]" not in again.err
    # The table shows what was resumed, too.
    assert len(re.findall(r"\bok\b", again.out)) == 2


def test_without_resume_results_are_added(cbs_run):
    cbs_run(*IN_PROCESS)
    again = cbs_run(*IN_PROCESS)
    assert again.code == 0
    assert len(again.document["benchmarks"]) == 2
    # A backend of another package declares which versions count.
    recorded = [record["versions"] for record in again.document["benchmarks"]]
    assert all(versions.keys() == {"cbs-test-plugin", "numpy"} for versions in recorded)
    assert len({run["run_id"] for run in again.document["runs"]}) == 2


def test_in_process_gives_the_same_results_without_a_worker(cbs_run):
    run = cbs_run(*IN_PROCESS)
    [record] = run.document["benchmarks"]
    metrics = record["metrics"]["framework_level"]
    assert run.code == 0, run.err
    assert len(metrics["latencies_ms"]) == 3
    assert metrics["final_verification"]["passed"]


def test_in_process_failures_are_results_too(cbs_run):
    run = cbs_run(*TOYS, "-name", "models/TOY_(NONE|RAISES)/.+", "--run-in-process")
    assert run.statuses["TOY_RAISES test_numpy:direct"] == "failed"
    assert run.statuses["TOY_NONE test_numpy:direct"] == "ok"


def test_counts_are_what_was_asked_for(cbs_run):
    run = cbs_run(*TOYS[:4], "-name", "models/TOY_NONE/.+", "-w", "0", "-iter", "7")
    metrics = run.document["benchmarks"][0]["metrics"]["framework_level"]
    assert (metrics["warmup_iterations"], metrics["benchmark_iterations"]) == (0, 7)
    assert len(metrics["latencies_ms"]) == len(metrics["dispatch_ms"]) == 7


def test_artifacts_are_made_once_and_checked(cbs_run, tmp_path):
    root = tmp_path / "root"
    first = cbs_run(*IN_PROCESS, "--root-dir", str(root))
    again = cbs_run(*IN_PROCESS, "--root-dir", str(root), "--no-download")
    assert "preparing" in first.err
    assert "preparing" not in again.err
    [truth] = root.glob("workloads/*/truth/output_0.npy")
    data = bytearray(truth.read_bytes())
    data[-1] ^= 1
    truth.write_bytes(data)
    damaged = cbs_run(*IN_PROCESS, "--root-dir", str(root))
    [*_, record] = damaged.document["benchmarks"]
    assert (record["status"], record["phase"]) == ("failed", "artifacts")
    assert "output_0.npy" in record["reason"]
    assert "--generate-artifacts" in record["reason"]
    mended = cbs_run(*IN_PROCESS, "--root-dir", str(root), "--generate-artifacts")
    assert mended.code == 0


def test_no_download_does_not_make_artifacts(cbs_run, tmp_path):
    run = cbs_run(*IN_PROCESS, "--root-dir", str(tmp_path / "root"), "--no-download")
    [record] = run.document["benchmarks"]
    assert record["status"] == "failed"
    assert "--generate-artifacts" in record["reason"]


def test_a_backend_that_is_not_installed_costs_the_others_nothing(cbs_run):
    run = cbs_run(*TOYS[:2], "--backend", "test_absent,test_numpy", *TOYS[4:], *ONE[-2:])
    assert run.statuses["TOY_NONE test_numpy:direct"] == "ok"
    assert run.statuses["TOY_NONE test_absent:direct"] == "unsupported"
    assert "pip install a-module-that-is-missing" in run.out
    assert run.code == 0


def test_only_unsupported_trials_exit_with_missing_data(cbs_run):
    run = cbs_run(*TOYS[:2], "--backend", "test_absent", *TOYS[4:], *ONE[-2:])
    assert run.code == 3


def test_gpu_cases_are_unsupported_without_one(cbs_run):
    run = cbs_run(*ONE, "-device", "host-gpu")
    [record] = run.document["benchmarks"]
    assert record["status"] == "unsupported"
    assert "numpy does not run on host-gpu" in record["reason"]
