"""Tests that only a GPU can answer: `pytest -m gpu`, or the step `tests` of `gpu_check.sh`."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from comparative_benchmark.gpu_check import nvidia_driver

# The checkout's own, and no package of that name that happens to be installed.
HERE = Path(__file__).parent


def pytest_collection_modifyitems(items):
    """Marks what is in this folder, and skips it where there is no GPU."""
    problem = nvidia_driver.problem()
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.gpu)
            item.add_marker(pytest.mark.alone)
            if problem:
                item.add_marker(pytest.mark.skip(reason="no NVIDIA GPU at hand"))


@pytest.fixture(scope="session")
def torch():
    """PyTorch with CUDA."""
    module = pytest.importorskip("torch", reason="torch is not installed")
    if not module.cuda.is_available():
        pytest.skip(f"torch {module.__version__} sees no CUDA device")
    return module


@pytest.fixture(scope="session")
def measured(tmp_path_factory):
    """Tiny BERT on the GPU by each framework that is there; metrics by competitor."""
    folder = tmp_path_factory.mktemp("measured")
    command = [
        *(sys.executable, "-P", "-m", "comparative_benchmark", "run", "--backend"),
        "pt_inductor:eager,pt_inductor:inductor,pt_inductor:inductor+cuda-graphs,jax_xla:xla",
        *("-name", r"models/BERT_TINY_FP32_(PT|JAX)_32XI32_BATCH1/inputs/INPUT_DATA_MODEL_DEFAULT"),
        *("-device", "host-gpu", "-w", "5", "-iter", "50", "-o", "results.json"),
    ]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=400, check=False
    )
    document = json.loads((folder / "results.json").read_text())
    found = {}
    for record in document["benchmarks"]:
        definition = record["definition"]
        name = f"{definition['backend']}:{definition['compiler']}"
        found[name] = {"status": record["status"], "reason": record.get("reason")}
        found[name] |= next(iter(record["metrics"].values()))
    assert found, done.stderr
    return found
