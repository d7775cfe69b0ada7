"""Fixtures of the unit tests: a fresh artifact root, and made-up trials."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from formats_support import write_results
from hypothesis import settings

from comparative_benchmark.analysis.verification.verification import Verification
from comparative_benchmark.engine import trial as trials
from comparative_benchmark.engine.trial import Trial
from comparative_benchmark.reporting.formats.torchbench import document_of
from comparative_benchmark.reporting.history import results_files
from comparative_benchmark.results.outcome import ProcessRecord, TrialFacts, TrialOutcome
from comparative_benchmark.results.record import Block, Phase, Program
from openxla.benchmark import devices
from openxla.benchmark.comparative_suite import catalog
from openxla.benchmark.installation import ROOT_DIR_VARIABLE
from openxla.benchmark.workloads import workload_of

# The same examples on every run; no time limit on a shared machine; no files in the checkout.
settings.register_profile("unit", derandomize=True, deadline=None, database=None)
settings.load_profile("unit")

DEFAULT_CASE = "models/BERT_TINY_FP32_JAX_32XI32_BATCH1/inputs/INPUT_DATA_MODEL_DEFAULT"


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An artifact root that is empty and gone after the test."""
    path = tmp_path / "artifact-root"
    monkeypatch.setenv(ROOT_DIR_VARIABLE, str(path))
    return path


@pytest.fixture
def run_python() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs a program in a fresh interpreter."""

    def run(program: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", program, *arguments],
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=50,
            check=False,
        )

    return run


@pytest.fixture(scope="session")
def make_trial() -> Callable[..., Trial]:
    """Makes a trial of a case of the suite."""

    def make(name: str = DEFAULT_CASE, competitor: str = "jax_xla:xla") -> Trial:
        (case,) = catalog.select(catalog.all_benchmarks(), name=name)
        (found,) = trials.parse_competitors(competitor, "cpu")
        return Trial(
            case=case, workload=workload_of(case), competitor=found, device=devices.HOST_CPU
        )

    return make


@pytest.fixture(scope="session")
def finished() -> Callable[..., TrialOutcome]:
    """Makes the outcome of a trial that went through all phases."""

    def make(**changes: object) -> TrialOutcome:
        verdict = Verification(
            passed=True,
            relative_rmse=1e-7,
            reference_relative_rmse=2e-7,
            allowed_relative_rmse=1e-6,
            max_abs_error=1e-6,
        )
        phases = ("import", "load", "h2d", "lower", "compile", "first_run", "execute", "d2h")
        block = Block(
            round=0,
            latencies_ms=(1.0, 2.0, 3.0, 4.0),
            dispatch_ms=(0.1, 0.2, 0.3, 0.4),
            cpu_ms=8.0,
            wall_ms=10.0,
        )
        fields: dict[str, object] = {
            "phases": {name: Phase(ms=2.0, host_memory_peak_bytes=5_000_000) for name in phases},
            "host_memory_peak_bytes": 5_000_000,
            "verification": verdict,
            "final_verification": verdict,
            "warmup_latencies_ms": [9.0, 7.0],
            "blocks": [block],
            "program": Program(weights="arguments", not_measurable=("trace",)),
            "versions": {"jax": "1.2.3"},
            "log_file": "run/trial.log",
        }
        return TrialOutcome(
            processes=[ProcessRecord(**{**fields, **changes})],
            facts=TrialFacts(artifact_digests={"inputs/input_0.npy": "0" * 64}),
            wall_s=1.23456,
        )

    return make


@pytest.fixture
def two_nights(
    tmp_path: Path, make_trial: Callable[..., Trial], finished: Callable[..., TrialOutcome]
) -> Callable[[float], dict[str, Any]]:
    """Returns a function that makes a userbenchmark document, with latencies times a factor."""

    def night(factor: float) -> dict[str, Any]:
        path = tmp_path / "results.json"
        path.unlink(missing_ok=True)
        write_results(path, make_trial, finished, factor=factor)
        return document_of(results_files.read(path).results, "comparative_suite")

    return night
