"""Inputs, expected outputs and checkpoint of a model; no framework is needed."""

import json
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from comparative_benchmark.backends.api import Array, UnsupportedError
from comparative_benchmark.maintenance.artifacts.job import Job
from openxla.benchmark.artifacts import archives, array_files
from openxla.benchmark.files import sha256_of
from openxla.benchmark.models import architectures, checkpoints

SECOND_FILE = "second_npy.tgz"
_CHECKPOINT = "checkpoint"


def export_arrays(job: Job) -> None:
    """Packs arrays as `input_0.npy` or `output_0.npy` and so on, in the OpenXLA suite's format.

    The arrays are the model's inputs, its outputs in its own type, or the float64 outputs that all
    runs are verified against.
    """
    paths: Sequence[Path] = getattr(job, job.options["of"])
    members = {f"{job.options['stem']}_{index}.npy": path for index, path in enumerate(paths)}
    archives.pack(job.directory / job.options["file"], members)


def read_arrays(job: Job) -> list[Array]:
    """Unpacks the arrays as a reader of a published model does."""
    with tempfile.TemporaryDirectory() as directory:
        target = Path(directory) / "unpacked"
        archives.unpack(job.find(job.options["file"]), target)
        return array_files.load_all(target, job.options["stem"])


def export_second(job: Job) -> None:
    """Packs the second input, and its truth and reference, each in its folder.

    Raises:
      UnsupportedError: there is no second input.
    """
    if not job.second:
        raise UnsupportedError(
            "the model has no second input; the workload's manifest gives the reason"
        )
    archives.pack(job.directory / SECOND_FILE, job.second)


def read_second(job: Job) -> list[Array]:
    """Unpacks the second input, and checks its files against the manifest.

    Raises:
      ValueError: a file differs from the manifest or is not listed in it.
    """
    files = json.loads(job.workload.read_text(encoding="utf-8"))["files"]
    with tempfile.TemporaryDirectory() as directory:
        target = Path(directory) / "unpacked"
        for path in archives.unpack(job.find(SECOND_FILE), target):
            name = path.relative_to(target).as_posix()
            if files.get(name, {}).get("sha256") != sha256_of(path):
                raise ValueError(f"workload.json has no matching digest for {name}")
    return []


def export_workload(job: Job) -> None:
    """Writes the workload's manifest, which describes inputs and outputs, without its date."""
    manifest = json.loads(job.workload.read_text(encoding="utf-8"))
    del manifest["date"]
    text = json.dumps(manifest, indent=2, sort_keys=True) + "\n"
    (job.directory / "workload.json").write_text(text, encoding="utf-8")


def read_workload(job: Job) -> list[Array]:
    """Checks the digests in the manifest against the arrays.

    Raises:
      ValueError: a file differs from the manifest or is not listed in it.
    """
    files = json.loads(job.find("workload.json").read_text(encoding="utf-8"))["files"]
    for kind in ("inputs", "truth", "reference"):
        for path in getattr(job, kind):
            named = files.get(f"{kind}/{path.name}", {}).get("sha256")
            if named != sha256_of(path):
                raise ValueError(f"workload.json has no matching digest for {kind}/{path.name}")
    return []


def export_checkpoint(job: Job) -> None:
    """Copies the checkpoint that all frameworks load.

    Raises:
      UnsupportedError: the model has no checkpoint.
    """
    if job.architecture is None:
        raise UnsupportedError(
            "the model has no checkpoint: its own code creates the weights from a seed"
        )
    architecture = architectures.get(job.architecture)
    parameters = architecture.complete(job.definition.parameters)
    source = checkpoints.resolve(architecture, parameters)
    shutil.copytree(source, job.directory / _CHECKPOINT)


def read_checkpoint(job: Job) -> list[Array]:
    """Opens the checkpoint with the safetensors library, and checks its files against its manifest.

    Raises:
      ValueError: a file differs from the manifest, or contains no tensors.
    """
    from safetensors import safe_open

    directory = job.find(_CHECKPOINT)
    described = json.loads((directory / checkpoints.MANIFEST_FILE).read_text(encoding="utf-8"))
    for name, facts in described["files"].items():
        if sha256_of(directory / name) != facts["sha256"]:
            raise ValueError(f"checkpoint file {name} does not match the digest in its manifest")
    json.loads((directory / "config.json").read_text(encoding="utf-8"))
    for path in sorted(directory.glob("*.safetensors")):
        with safe_open(path, framework="numpy") as file:
            shapes = {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118  # no mapping
        if not shapes:
            raise ValueError(f"{path.name} contains no tensors")
    return []
