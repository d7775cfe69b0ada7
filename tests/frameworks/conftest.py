"""Tiny models on every backend: one run per backend and session, shared by all tests."""

import json
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest
from filelock import FileLock
from tests_support import Run, run_cbs

# Competitors and models of each run: FP32, batch size 1, default inputs. A key is a backend, or a
# competitor that has a run of its own.
COLUMNS = {
    "pt_inductor": ("pt_inductor:eager,pt_inductor:inductor", "PT"),
    "jax_xla": ("jax_xla:xla", "JAX"),
    "iree": ("iree:llvm-cpu", "(PT|JAX)"),
    "iree:llvm-cpu-data-tiling": ("iree:llvm-cpu-data-tiling", "(PT|TF)"),
    "tf_xla": ("tf_xla:xla,tf_xla:graph", "TF"),
    "xla_hlo": ("xla_hlo:stablehlo,xla_hlo:hlo-text,xla_hlo:hlo-proto", "JAX"),
    "onnxruntime": ("onnxruntime:default", "PT"),
    "openvino": ("openvino:latency", "PT"),
    "tflite": ("tflite:native", "JAX"),
}
NAMES = "models/(BERT|RESNET)_TINY_FP32_{}_.+_BATCH1/.+DEFAULT"
WARM_UP, ITERATIONS = 2, 20


@pytest.fixture(scope="session")
def environment(kept_environment: dict[str, str]) -> dict[str, str]:
    """Variables with the kept artifact root; `session_environment` is for misbehaving models."""
    return kept_environment


@pytest.fixture(scope="session")
def column(
    tmp_path_factory: pytest.TempPathFactory, environment: dict[str, str]
) -> Callable[[str], Run]:
    """Returns a function that makes a run of `COLUMNS`, or returns the run of another test.

    Processes of `--numprocesses` share the runs. One worker serves all models of a competitor.
    """
    shared = tmp_path_factory.getbasetemp()
    if shared.name.startswith("popen-"):
        shared = shared.parent

    def run(backend: str) -> Run:
        directory = shared / "tiny-models" / backend.replace(":", "-")
        directory.mkdir(parents=True, exist_ok=True)
        finished = directory / "run.json"
        with FileLock(directory / "lock"):
            if not finished.exists():
                made = _measured(backend, directory, environment)
                finished.write_text(json.dumps(attrs.asdict(made), default=str))
        fields = json.loads(finished.read_text())
        return Run(**{**fields, "output": Path(fields["output"])})

    return run


def _measured(backend: str, directory: Path, environment: dict[str, str]) -> Run:
    competitors, frameworks = COLUMNS[backend]
    return run_cbs(
        *("--backend", competitors, "-name", NAMES.format(frameworks), "--share-workers"),
        *("-w", str(WARM_UP), "-iter", str(ITERATIONS), "--profile"),
        directory=directory,
        environment=environment,
    )


@pytest.fixture(scope="session")
def records(column: Callable[[str], Run]) -> Callable[[str, str], list[dict]]:
    """Returns a function that returns the results of a competitor, for models of a framework."""

    def of(competitor: str, framework: str = "") -> list[dict]:
        backend, _, compiler = competitor.partition(":")
        run = column(competitor if competitor in COLUMNS else backend)
        found = [
            record
            for record in run.document["benchmarks"]
            if record["definition"]["compiler"] == compiler
            and f"_{framework}" in record["definition"]["model"]
        ]
        assert {record["status"] for record in found} == {"ok"}, run.out + run.err
        return found

    return of
