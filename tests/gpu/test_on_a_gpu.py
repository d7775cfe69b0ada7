"""Tests that require a real GPU: `pytest -m gpu`, or the step `tests` of `gpu_check.sh`."""

import json
import subprocess
import sys

import numpy as np
import pytest

from comparative_benchmark.analysis.machine import gpu_state
from comparative_benchmark.analysis.roofline import ceilings
from gpu_check.bootstrap import gpu_problem

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.alone,
    pytest.mark.skipif(gpu_problem() is not None, reason="no NVIDIA GPU found"),
]

COMPETITORS = (
    "pt_inductor:eager",
    "pt_inductor:inductor",
    "pt_inductor:inductor+cuda-graphs",
    "jax_xla:xla",
)


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
        ",".join(COMPETITORS),
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


def _ok(measured, competitor):
    found = measured[competitor]
    if found["status"] == "unsupported":
        pytest.skip(f"{competitor}: {found['reason']}")
    assert found["status"] == "ok", found["reason"]
    return found


@pytest.mark.parametrize("competitor", COMPETITORS)
def test_memory_of_the_device_is_that_of_the_program(measured, competitor):
    found = _ok(measured, competitor)
    # Tiny BERT's weights are 2.1 MB; a reservation of the allocator would be gigabytes.
    assert 2 < found["device_memory_peak_mb"] < 1000


@pytest.mark.parametrize("competitor", COMPETITORS)
def test_tf32_is_off_and_recorded(measured, competitor):
    found = _ok(measured, competitor)
    assert found["program"]["notes"]["tf32"] is False
    assert found["program"]["device_name"]
    # With TF32 the error is some 1e-4.
    assert found["final_verification"]["relative_rmse"] < 1e-5


@pytest.mark.parametrize("competitor", [name for name in COMPETITORS if "pt_" in name])
def test_the_device_has_its_own_clock(measured, competitor):
    found = _ok(measured, competitor)
    device, host = (np.median(found[name]) for name in ("device_latencies_ms", "latencies_ms"))
    assert 0 < device < 1.5 * host


def test_dispatch_returns_before_the_device_is_done(torch):
    left = torch.randn(8192, 8192, device="cuda")
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    start.record()
    for _ in range(5):
        left @ left
    end.record()
    busy = not end.query()
    torch.cuda.synchronize()
    assert busy
    assert start.elapsed_time(end) > 0


@pytest.mark.parametrize("tf32", [False, True])
def test_the_switch_decides_what_a_product_is_computed_in(torch, tf32):
    """In a separate process, because the switch is global; the test must notice TF32."""
    program = f"""
import torch
from comparative_benchmark.pt_inductor import cuda
if {tf32}:
    torch.set_float32_matmul_precision("high")
else:
    cuda.forbid_tf32()
torch.manual_seed(0)
left, right = (torch.randn(1024, 1024, device="cuda") for _ in range(2))
exact = left.double() @ right.double()
print(float(((left @ right).double() - exact).norm() / exact.norm()))
"""
    done = subprocess.run(
        [sys.executable, "-P", "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    error = float(done.stdout)
    if torch.cuda.get_device_capability() >= (8, 0):
        assert (error > 1e-5) is tf32
    else:
        assert error < 1e-5


def test_the_driver_reports_clocks():
    gpus = gpu_state.read_gpus()
    assert gpus
    assert gpus[0].sm_mhz > 0


@pytest.mark.parametrize("competitor", COMPETITORS)
def test_conditions_of_each_block_hold_the_gpu(measured, competitor):
    found = _ok(measured, competitor)
    for process in found["processes"]:
        for block in process["blocks"]:
            assert block["conditions"]["gpus_at_end"][0]["sm_mhz"] > 0


def test_ceilings_of_this_gpu(torch, tmp_path, monkeypatch):
    monkeypatch.setenv("CBS_ROOT_DIR", str(tmp_path))
    found = ceilings.measure_ceilings(device="host-gpu", budget_s=60)
    assert found.gpu == torch.cuda.get_device_name(0)
    assert found.best_copy() is not None
    fp32, bf16 = (found.best_gemm(name) for name in ("fp32", "bf16"))
    assert fp32 is not None
    assert bf16 is not None
    if torch.cuda.get_device_capability() >= (8, 0):
        assert bf16.gflops > 2 * fp32.gflops
