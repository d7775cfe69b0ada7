"""Inputs, truth and reference of a workload, made once and kept in the local artifact root.

Layout of `<root>/workloads/<workload id>/`:

    manifest.json              what is here, from what it was made, sha256 and size of each file;
                               what an iteration costs; where it was fetched from, if it was
    inputs/input_0.npy ...     the arrays that every framework gets
    truth/output_0.npy ...     outputs of the float64 run
    reference/output_0.npy ... outputs of an op-by-op run in the model's own type
"""

import datetime
import hashlib
import json
import shutil
import tempfile
from collections.abc import Collection, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import attrs

from openxla.benchmark.artifacts import arrays
from openxla.benchmark.artifacts.workload_cost import WorkloadCost
from openxla.benchmark.def_types import BenchmarkCase, Workload
from openxla.benchmark.root import root_dir
from openxla.benchmark.workloads import source_digest

MANIFEST_FILE = "manifest.json"
# 2: the reference of a model that generates goes on with the truth's tokens.
MANIFEST_VERSION = 2
_UNKNOWN_COST = WorkloadCost()
_KINDS = (("inputs", "input"), ("truth", "output"), ("reference", "output"))


class ArtifactError(RuntimeError):
    """Artifacts are missing or damaged; the message says which and what to do."""


@attrs.frozen(kw_only=True)
class WorkloadArtifacts:
    """The verified files of one workload."""

    directory: Path
    manifest: Mapping[str, Any]

    @property
    def inputs(self) -> list[Path]:
        """Input arrays in order."""
        return self._listed("inputs")

    @property
    def truth(self) -> list[Path]:
        """Float64 outputs in order."""
        return self._listed("truth")

    @property
    def reference(self) -> list[Path]:
        """Same-type outputs in order."""
        return self._listed("reference")

    def _listed(self, kind: str) -> list[Path]:
        """Returns the files of a kind that the manifest vouches for; strays are no inputs."""
        stem = dict(_KINDS)[kind]
        paths = arrays.numbered(self.directory / kind, stem)
        return [path for path in paths if f"{kind}/{path.name}" in self.manifest["files"]]

    @property
    def cost(self) -> WorkloadCost:
        """What an iteration has to do; all None in a manifest from before this was counted."""
        return WorkloadCost(**self.manifest.get("cost", {}))

    @property
    def origin(self) -> dict[str, str] | None:
        """Model, URL and sha256 of the manifest that it was fetched by; None if it was made here.

        The sha256 names exactly which artifacts these are.
        """
        fetched = self.manifest.get("fetched")
        return None if fetched is None else dict(fetched)

    @property
    def digests(self) -> dict[str, str]:
        """sha256 of each file, by its path in the directory."""
        return {name: facts["sha256"] for name, facts in self.manifest["files"].items()}


def directory_of(workload: Workload) -> Path:
    """Returns where the artifacts of a workload belong."""
    return root_dir() / "workloads" / workload.id


def find(workload: Workload, *, locked: Collection[str] = frozenset()) -> WorkloadArtifacts | None:
    """Returns the artifacts of a workload, or None where there are none that still hold.

    They hold while the source of the implementation that made them is unchanged, or while the
    publication that they were fetched from is locked. For a model that shares its workload with
    nobody, whose weights may come from its framework's own generator, they hold while the
    framework's version is unchanged, too.

    Args:
      workload: whose artifacts.
      locked: sha256 of the manifests that lock files name.

    Raises:
      ArtifactError: they are there, and damaged.
    """
    directory = directory_of(workload)
    if not (directory / MANIFEST_FILE).is_file():
        return None
    try:
        manifest = json.loads((directory / MANIFEST_FILE).read_text(encoding="utf-8"))
        producer, files = manifest["producer"], manifest["files"]
        holds = (
            manifest["manifest_version"] == MANIFEST_VERSION
            and manifest["workload"]["digest"] == workload.digest
            and (
                (manifest.get("fetched") or {}).get("manifest_sha256") in locked
                or producer["source_sha256"] == source_digest(producer["module_path"])
            )
            and not other_versions(workload, producer["versions"])
        )
        if not holds:
            return None
        for name, facts in files.items():
            _check_file(directory / name, facts)
        found = WorkloadArtifacts(directory=directory, manifest=manifest)
        _ = found.cost  # raises when it is malformed
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ArtifactError(
            _damaged(directory, f"{MANIFEST_FILE} is malformed: {error}")
        ) from error
    return found


def new_directory(workload: Workload) -> Path:
    """Returns a fresh directory beside the final one, to be filled and given to `publish`."""
    parent = directory_of(workload).parent
    parent.mkdir(parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(prefix=f".{workload.id}.", dir=parent))


def publish(
    directory: Path,
    *,
    workload: Workload,
    case: BenchmarkCase,
    versions: Mapping[str, str],
    cost: WorkloadCost = _UNKNOWN_COST,
) -> WorkloadArtifacts:
    """Writes the manifest of a filled directory and moves it to its place.

    Args:
      directory: from `new_directory`, with `inputs`, `truth` and `reference` in it.
      workload: whose artifacts they are.
      case: the case whose implementation made them.
      versions: packages and versions that made them.
      cost: what an iteration has to do.
    """
    files = {
        f"{kind}/{path.name}": {"sha256": _sha256(path), "size_bytes": path.stat().st_size}
        for kind, stem in _KINDS
        for path in arrays.numbered(directory / kind, stem)
    }
    module_path = case.model.model_impl.module_path
    manifest = {
        "manifest_version": MANIFEST_VERSION,
        "workload": attrs.asdict(workload),
        "producer": {
            "benchmark_name": case.name,
            "module_path": module_path,
            "source_sha256": source_digest(module_path),
            "versions": dict(versions),
        },
        "cost": attrs.asdict(cost),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "files": files,
    }
    return put_in_place(directory, workload, manifest)


def put_in_place(
    directory: Path, workload: Workload, manifest: Mapping[str, Any]
) -> WorkloadArtifacts:
    """Writes a manifest into a filled directory and moves it to the workload's place."""
    text = json.dumps(manifest, indent=2, sort_keys=True) + "\n"
    (directory / MANIFEST_FILE).write_text(text, encoding="utf-8")
    directory.chmod(0o755)
    target = directory_of(workload)
    _replace_directory(directory, target)
    return WorkloadArtifacts(directory=target, manifest=manifest)


def other_versions(workload: Workload, versions: Mapping[str, str]) -> dict[str, str | None]:
    """Returns the packages that are of another version here, where that changes the truth.

    Only a model that shares its workload with nobody may have weights of its framework's own
    making. The versions are those here, None for what is not installed.
    """
    if workload.inputs:
        return {}
    here = {package: _version(package) for package in versions}
    return {package: found for package, found in here.items() if found != versions[package]}


def _replace_directory(new: Path, target: Path) -> None:
    """Puts a directory in the place of another; whoever comes second replaces equal content."""
    old = Path(tempfile.mkdtemp(prefix=f".{target.name}.old.", dir=target.parent))
    try:
        if target.exists():
            target.rename(old / target.name)
        new.rename(target)
    finally:
        shutil.rmtree(old, ignore_errors=True)


def _check_file(path: Path, facts: Mapping[str, Any]) -> None:
    if not path.is_file():
        raise ArtifactError(_damaged(path.parent.parent, f"{path.name} is missing"))
    if path.stat().st_size != facts["size_bytes"] or _sha256(path) != facts["sha256"]:
        message = f"{path.parent.name}/{path.name} is not the file that the manifest describes"
        raise ArtifactError(_damaged(path.parent.parent, message))


def _damaged(directory: Path, reason: str) -> str:
    return f"artifacts in {directory}: {reason}; run again with --generate-artifacts"


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
