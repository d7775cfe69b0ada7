"""From generation to a run on another machine, and each command of the user's guide."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import attrs
import pytest

pytest.importorskip("google.cloud.storage", reason="needs the extra gcs")
pytest.importorskip("gcp_storage_emulator", reason="needs the extra dev")

from gcs_emulator import BUCKET, gcs_emulator

from openxla.benchmark.artifacts import manifests
from openxla.benchmark.installation import LOCKS_DIR_VARIABLE, ROOT_DIR_VARIABLE

# The default tier has `tests/harness/test_fetched_artifacts.py`, with the toys.
pytestmark = [pytest.mark.frameworks, pytest.mark.nightly]

ROOT = Path(__file__).resolve().parents[2]
JAX = "BERT_TINY_FP32_JAX_32XI32_BATCH1"
PT = "BERT_TINY_FP32_PT_32XI32_BATCH1"
PT_TYPES = "inputs,outputs,truth,workload,onnx"


@attrs.frozen
class Place:
    """A directory in which commands are run, with its own root and lock files."""

    directory: Path
    environment: dict[str, str]

    def run(self, script: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=self.directory,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )

    def another_machine(self, name: str) -> "Place":
        """The same lock files, and nothing else."""
        root = self.directory / name
        return Place(self.directory, {**self.environment, ROOT_DIR_VARIABLE: str(root)})

    @property
    def locks(self) -> dict[str, manifests.LockedModel]:
        return manifests.read_lock_files(self.directory / "artifacts" / "locks")


def blocks() -> list[str]:
    text = (ROOT / "docs" / "guides" / "artifacts.md").read_text(encoding="utf-8")
    return re.findall(r"^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder like a checkout, next to an emulated store."""
    directory = tmp_path_factory.mktemp("guide")
    (directory / "comparative_benchmark").symlink_to(ROOT / "comparative_benchmark")
    with gcs_emulator() as store:
        environment = {
            **os.environ,
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            "STORAGE_EMULATOR_HOST": store.url,
            ROOT_DIR_VARIABLE: str(directory / "root"),
            LOCKS_DIR_VARIABLE: str(directory / "artifacts" / "locks"),
            "COLUMNS": "200",
        }
        yield Place(directory, environment)


@pytest.fixture(scope="module")
def guide(place):
    """Runs all commands of the guide; returns the output of each block."""
    said = []
    for block in blocks():
        done = place.run(block.replace("gs://my-bucket", f"gs://{BUCKET}"))
        assert done.returncode == 0, f"{block}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
        said.append(done)
        if "run_benchmarks.py" in block:
            assert "inputs and truth for" not in done.stderr
    return said


@pytest.fixture(scope="module")
def torch_model(place):
    """The same workload in PyTorch, published and locked by one command."""
    done = place.run(
        f"cbs artifacts generate -name {PT} -o torch-models --jobs 2 --types {PT_TYPES}\n"
        f"cbs artifacts publish torch-models gs://{BUCKET}/pt/v1 --auto-upload "
        "--lock artifacts/locks/pt.json\n"
        "test ! -e torch-models"
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return place.locks[PT]


def results(path: Path) -> dict[str, dict]:
    """Records of the last run by `backend:compiler`."""
    document = json.loads(path.read_text())
    return {
        f"{d['backend']}:{d['compiler']}": record
        for record in document["benchmarks"]
        for d in (record["definition"],)
    }


def metrics_of(record: dict) -> dict:
    (metrics,) = record["metrics"].values()
    return metrics


def test_the_guide_has_a_command_of_each_kind_and_all_work(guide):
    text = "".join(blocks())
    for name in ("generate", "publish", "lock", "fetch", "ls", "verify", "gc", "rm"):
        assert f"cbs artifacts {name}" in text
    assert len(guide) == len(blocks())


def test_the_guide_s_runs_name_what_they_used(place, guide):
    lock = place.locks[JAX]
    found = results(place.directory / "results.json")
    assert set(found) == {"jax_xla:xla", "xla_hlo:stablehlo", "tflite:fp32"}
    for record in found.values():
        assert record["status"] == "ok", record
        source = metrics_of(record)["artifact_source"]
        assert source["manifest_sha256"] == lock.manifest_sha256
        assert source["url"] == f"gs://{BUCKET}/jax/v1/{JAX}"


@pytest.mark.parametrize(
    ("backend", "options"),
    [("jax_xla", ""), ("xla_hlo", "-c stablehlo"), ("iree", "-c llvm-cpu"), ("tflite", "-c fp32")],
)
def test_another_machine_fetches_verifies_and_runs(place, guide, tmp_path, backend, options):
    there, lock = place.another_machine(f"root-{backend}"), place.locks[JAX]
    done = there.run(
        f"./comparative_benchmark/{backend}/run_benchmarks.py {options} -device host-cpu "
        f"-w 1 -iter 3 -name models/{JAX}/inputs/INPUT_DATA_MODEL_DEFAULT -o {tmp_path}/r.json"
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "published artifacts for 1 model" in done.stderr
    assert "inputs and truth for" not in done.stderr
    (record,) = results(tmp_path / "r.json").values()
    metrics = metrics_of(record)
    assert metrics["final_verification"]["passed"]
    source = {"model": JAX, "url": lock.url, "manifest_sha256": lock.manifest_sha256}
    assert metrics["artifact_source"] == source
    assert metrics["program_source"] is None


def start_from_programs(place: Place, model: str, types: dict[str, tuple[str, ...]], output: Path):
    """Runs competitors on published programs; they verify, and import no framework."""
    lock = place.locks[model]
    done = place.another_machine(f"root-programs-{model}").run(
        f"cbs run --backend {','.join(types)} --exported-programs -device host-cpu -w 1 -iter 3 "
        f"-name models/{model}/inputs/INPUT_DATA_MODEL_DEFAULT -o {output}"
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    found = results(output)
    assert set(found) == set(types)
    for competitor, record in found.items():
        metrics = metrics_of(record)
        assert metrics["final_verification"]["passed"]
        source = metrics["program_source"]
        assert source["types"] == sorted(types[competitor])
        assert (source["url"], source["manifest_sha256"]) == (lock.url, lock.manifest_sha256)
        assert metrics["artifact_source"]["manifest_sha256"] == lock.manifest_sha256
        timed = {name for name, phase in metrics["phases"].items() if isinstance(phase, dict)}
        assert not {"trace", "lower"} & timed
        assert not {"jax", "flax", "torch", "tensorflow"} & set(record["versions"])


def test_published_programs_of_jax_run_without_it(place, guide, tmp_path):
    types = {
        "xla_hlo:stablehlo": ("stablehlo_bytecode", "xla_weights"),
        "iree:llvm-cpu": ("stablehlo_mlir", "xla_weights"),
        "tflite:fp32": ("tflite_fp32",),
    }
    start_from_programs(place, JAX, types, tmp_path / "r.json")


def test_a_published_program_of_torch_runs_without_it(place, torch_model, tmp_path):
    start_from_programs(place, PT, {"onnxruntime:default": ("onnx",)}, tmp_path / "r.json")


def test_a_program_that_was_not_published_is_reported(place, guide, tmp_path):
    there = place.another_machine("root-refused")
    done = there.run(
        "./comparative_benchmark/xla_hlo/run_benchmarks.py -c hlo-text -device host-cpu "
        f"--exported-programs -name models/{JAX}/inputs/INPUT_DATA_MODEL_DEFAULT "
        f"-o {tmp_path}/r.json"
    )
    assert done.returncode == 3
    (record,) = results(tmp_path / "r.json").values()
    assert record["status"] == "unsupported"
    assert "xla_hlo_dump with xla_weights" in record["reason"]
    assert "--exported-programs" in record["reason"]
