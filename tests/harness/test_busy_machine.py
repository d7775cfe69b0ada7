"""Next to processes that use every CPU, correct programs are not accused."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests_support import run_cbs

from comparative_benchmark.analysis.machine.host import usable_cpus

MODEL = Path(__file__).parents[2] / "docs" / "examples" / "my_net.py"


@pytest.fixture
def busy_machine():
    """Runs a busy process on each CPU."""
    command = [sys.executable, "-c", "while True: pass"]
    processes = [subprocess.Popen(command) for _ in range(usable_cpus())]
    yield
    for process in processes:
        process.kill()
        process.wait()


@pytest.mark.alone
@pytest.mark.nightly
def test_eager_pytorch_is_not_accused_of_keeping_its_outputs(busy_machine, tmp_path, environment):
    # Its second thread waits for a CPU after each pause, so that single runs take 400 times as long
    # as timed iterations.
    race = (str(MODEL), "--backend", "pt_inductor:eager,onnxruntime", "--processes", "3")
    run = run_cbs(*race, directory=tmp_path, environment=environment)
    statuses = {record["status"] for record in run.document["benchmarks"]}
    assert statuses <= {"ok", "unsteady"}, run.err
