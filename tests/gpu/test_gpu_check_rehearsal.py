"""Planted faults and a pair whose ratio is known, run for real on the CPU."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests_support import python_path

SCRIPTS = Path(__file__).parents[2] / "scripts"

pytestmark = [pytest.mark.nightly, pytest.mark.frameworks]


def _run(module, *arguments, environment, directory):
    return subprocess.run(
        [sys.executable, "-P", "-m", f"gpu_check.{module}", *arguments],
        env={**environment, "PYTHONPATH": python_path(SCRIPTS)},
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )


def test_each_planted_fault_costs_its_own_trial(tmp_path, environment):
    answer = tmp_path / "answer.json"
    done = _run(
        "faults",
        *("--device", "host-cpu", "--scratch", str(tmp_path), "--answer", str(answer)),
        *("--first-run", "6"),
        environment=environment,
        directory=tmp_path,
    )
    found = json.loads(answer.read_text())["faults"]
    assert {item["fault"]: item["status"] for item in found} == {
        "good": "ok",
        "memory": "out_of_memory",
        "kernel-error": "failed",
        "broken-context": "failed",
        "killed-in-kernel": "crashed",
        "hang": "timeout",
        "none": "ok",
        "foreign-process": "ok, contended",
    }
    assert done.returncode == 0, done.stderr


@pytest.mark.alone
def test_a_race_of_three_whose_workers_start_together(tmp_path, environment):
    answer = tmp_path / "answer.json"
    done = _run(
        *("races", "pairs"),
        *("--device", "host-cpu", "--backend", "jax_xla:xla", "--pairs", "1", "--seconds", "200"),
        *("--model", "BERT_TINY_FP32_JAX_32XI32_BATCH1", "--answer", str(answer)),
        environment=environment,
        directory=tmp_path,
    )
    assert answer.exists(), done.stderr
    equal, slower = json.loads(answer.read_text())["verdicts"]
    # This tests that ratios exist; the verdicts depend on the noise of the machine.
    assert (equal["kind"], slower["kind"]) == ("equal", "slowed")
    assert equal["ratio"] > 0
    assert slower["ratio"] > 0
