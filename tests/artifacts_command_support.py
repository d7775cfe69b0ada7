"""What the tests of `cbs artifacts` share: publications of cases, as an exporter makes them."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
from artifact_support import DATE
from fault_server import FaultServer

from openxla.benchmark.artifacts import manifest as manifests
from openxla.benchmark.artifacts import published_checkpoint, published_workload, workload_store
from openxla.benchmark.artifacts.lock_file import LockedModel, locked
from openxla.benchmark.artifacts.manifest import MANIFEST_FILE, ArtifactFile, Manifest
from openxla.benchmark.def_types import BenchmarkCase
from openxla.benchmark.workloads import workload_of

Change = Callable[[dict[str, Any]], None]


def publication(case: BenchmarkCase, directory: Path, change: Change | None = None) -> Path:
    """Writes what is under the root directory of a case into a directory, with a manifest.

    Args:
      case: whose inputs and truth have been made.
      directory: where to.
      change: made to what is said of the workload, before digests are taken.
    """
    artifacts = workload_store.find(workload_of(case))
    assert artifacts is not None
    directory.mkdir(parents=True)
    entries = published_workload.add_to(directory, artifacts)
    if change is not None:
        (entry,) = (item for item in entries if item.artifact_type == "workload")
        document = json.loads((directory / entry.path).read_text())
        change(document)
        (directory / entry.path).write_text(json.dumps(document))
        entries = [_described_anew(directory, item) for item in entries]
    checkpoint = published_checkpoint.directory_of(case)
    if checkpoint is not None and checkpoint.is_dir():
        entries += published_checkpoint.add_to(directory, checkpoint, date=DATE)
    manifests.write(directory, Manifest(model=case.model.name, files=tuple(entries)))
    return directory


def _described_anew(directory: Path, entry: ArtifactFile) -> ArtifactFile:
    content = (directory / entry.path).read_bytes()
    sha256 = hashlib.sha256(content).hexdigest()
    return attrs.evolve(entry, sha256=sha256, size_bytes=len(content))


def serve(server: FaultServer, directory: Path) -> LockedModel:
    """Puts a directory on a server; returns its lock."""
    model = manifests.read(directory).model
    for path in directory.rglob("*"):
        if path.is_file():
            server.put(f"{model}/{path.relative_to(directory).as_posix()}", path.read_bytes())
    text = (directory / MANIFEST_FILE).read_bytes()
    return locked(f"{server.url}/{model}", text)[1]
