"""Helpers of the tests of `cbs artifacts`: publications of cases, as an exporter makes them."""

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from artifact_support import DATE
from fault_server import FaultServer
from msgspec.structs import replace

from openxla.benchmark.artifacts import installing, manifests, workload_store
from openxla.benchmark.artifacts.manifests import (
    MANIFEST_FILE,
    ArtifactFile,
    LockedModel,
    Manifest,
    locked_model,
)
from openxla.benchmark.artifacts.workload_store import WorkloadArtifacts
from openxla.benchmark.def_types import BenchmarkCase
from openxla.benchmark.files import sha256_of
from openxla.benchmark.workloads import workload_of

Change = Callable[[dict[str, Any]], None]


def publication(case: BenchmarkCase, directory: Path, change: Change | None = None) -> Path:
    """Writes what is under the root directory of a case into a directory, with a manifest.

    Args:
      case: case with existing inputs and truth.
      directory: target folder.
      change: changes the workload's description before digests are computed.
    """
    artifacts = workload_store.find(workload_of(case))
    assert artifacts is not None
    directory.mkdir(parents=True)
    entries = add_workload(directory, artifacts)
    if change is not None:
        (entry,) = (item for item in entries if item.artifact_type == "workload")
        document = json.loads((directory / entry.path).read_text())
        change(document)
        (directory / entry.path).write_text(json.dumps(document))
        entries = [_described_anew(directory, item) for item in entries]
    checkpoint = installing.checkpoint_directory_of(case)
    if checkpoint is not None and checkpoint.is_dir():
        entries += add_checkpoint(directory, checkpoint)
    manifests.write_manifest(directory, Manifest(model=case.model.name, files=tuple(entries)))
    return directory


def add_workload(directory: Path, artifacts: WorkloadArtifacts) -> list[ArtifactFile]:
    """Copies a workload's files and their description into a directory."""
    types = {"inputs": "inputs", "truth": "truth", "reference": "outputs"}
    folder = directory / "workloads" / artifacts.directory.name
    kinds = {
        folder / name: types.get(name.partition("/")[0], "second") for name in artifacts.digests
    }
    for path in kinds:
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(artifacts.directory / path.relative_to(folder), path)
    (folder / "workload.json").write_text(json.dumps(document_of(artifacts)))
    kinds[folder / "workload.json"] = "workload"
    return [
        described(directory, path, kind, artifacts.manifest.date) for path, kind in kinds.items()
    ]


def document_of(artifacts: WorkloadArtifacts) -> dict[str, Any]:
    """Returns the published file of type `workload`."""
    document = json.loads((artifacts.directory / MANIFEST_FILE).read_text())
    document.pop("fetched", None)
    return document


def add_checkpoint(directory: Path, checkpoint: Path) -> list[ArtifactFile]:
    """Copies a checkpoint into a directory."""
    shutil.copytree(checkpoint, directory / "checkpoint")
    paths = sorted(path for path in (directory / "checkpoint").rglob("*") if path.is_file())
    return [described(directory, path, "checkpoint", DATE) for path in paths]


def described(directory: Path, path: Path, kind: str, date: str) -> ArtifactFile:
    return ArtifactFile(
        path=path.relative_to(directory).as_posix(),
        artifact_type=kind,
        sha256=sha256_of(path),
        size_bytes=path.stat().st_size,
        producers={},
        date=date,
    )


def _described_anew(directory: Path, entry: ArtifactFile) -> ArtifactFile:
    content = (directory / entry.path).read_bytes()
    sha256 = hashlib.sha256(content).hexdigest()
    return replace(entry, sha256=sha256, size_bytes=len(content))


def serve(server: FaultServer, directory: Path) -> LockedModel:
    """Puts a directory on a server; returns its lock."""
    model = manifests.read_manifest(directory).model
    for path in directory.rglob("*"):
        if path.is_file():
            server.put(f"{model}/{path.relative_to(directory).as_posix()}", path.read_bytes())
    text = (directory / MANIFEST_FILE).read_bytes()
    return locked_model(f"{server.url}/{model}", text)[1]
