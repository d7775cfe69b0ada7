"""A workload's inputs, truth and reference as part of what is published of a model, and back.

A publication holds, for each input set, the store's manifest of that workload as a file of the type
`workload`. It names every array by its sha256; where the arrays themselves are, as files or inside
`.tgz` archives, under which names, does not matter: they are found by their content. What is
put in place is what was locked, to the byte, or nothing.
"""

import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
from filelock import FileLock, Timeout

from openxla.benchmark.artifacts import archives, workload_store
from openxla.benchmark.artifacts.fetch_options import FetchedModel
from openxla.benchmark.artifacts.manifest import ArtifactFile
from openxla.benchmark.artifacts.published_files import link, sha256_of
from openxla.benchmark.artifacts.stores.errors import StoreError
from openxla.benchmark.artifacts.strict_json import why_no_object_name
from openxla.benchmark.artifacts.workload_cost import WorkloadCost
from openxla.benchmark.artifacts.workload_store import (
    MANIFEST_VERSION,
    ArtifactError,
    WorkloadArtifacts,
)
from openxla.benchmark.def_types import BenchmarkCase, Workload

WORKLOAD_TYPE = "workload"
# What a workload is put together from.
WORKLOAD_TYPES = frozenset({WORKLOAD_TYPE, "inputs", "outputs", "truth", "reference"})
WORKLOAD_FILE = "workload.json"
_TYPES = {"inputs": "inputs", "truth": "truth", "reference": "outputs"}
_LOCK_TIMEOUT_S = 600.0


def add_to(directory: Path, artifacts: WorkloadArtifacts) -> list[ArtifactFile]:
    """Copies a workload's files into a directory that is to be published; returns its entries.

    They go to a folder with the workload's name: a model may have several input sets.
    """
    producer = artifacts.manifest["producer"]
    folder = directory / "workloads" / artifacts.directory.name
    entries = []
    for name in artifacts.digests:
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(artifacts.directory / name, target)
        entries.append((target, _TYPES[name.partition("/")[0]]))
    (folder / WORKLOAD_FILE).write_bytes(document(artifacts))
    entries.append((folder / WORKLOAD_FILE, WORKLOAD_TYPE))
    return [
        ArtifactFile(
            path=path.relative_to(directory).as_posix(),
            artifact_type=kind,
            sha256=sha256_of(path),
            size_bytes=path.stat().st_size,
            producers=producer["versions"],
            date=artifacts.manifest["date"],
        )
        for path, kind in entries
    ]


def document(artifacts: WorkloadArtifacts) -> bytes:
    """Returns what is published as a file of the type `workload`."""
    manifest = {key: value for key, value in artifacts.manifest.items() if key != "fetched"}
    return (json.dumps(manifest, indent=2, sort_keys=True) + "\n").encode()


def install(
    fetched: FetchedModel, *, url: str, case: BenchmarkCase, workload: Workload
) -> WorkloadArtifacts | None:
    """Puts a case's inputs, truth and reference from a publication into the workload's place.

    Args:
      fetched: the publication, with all its files of `WORKLOAD_TYPES`.
      url: where it is published.
      case: which input set is meant.
      workload: of the case, as this revision of the suite defines it.

    Returns:
      the artifacts; None where the publication has none of this input set, or was made by other
      versions of a framework whose own generator decides the weights.

    Raises:
      ArtifactError: the publication is of another workload, or is not what it says.
    """
    where = f"{fetched.manifest.model} at {url}"
    found = _document_of(fetched, case, workload, where)
    if found is None or workload_store.other_versions(workload, found.versions):
        return None
    origin = {
        "model": fetched.manifest.model,
        "url": url,
        "manifest_sha256": fetched.manifest_sha256,
    }
    with _alone(workload):
        there = _in_place(workload, fetched.manifest_sha256)
        if there is not None:  # another process was first
            return there
        directory = workload_store.new_directory(workload)
        try:
            with _contents(fetched, where) as contents:
                for name, facts in found.manifest["files"].items():
                    content = contents.get(facts["sha256"])
                    if content is None or content.stat().st_size != facts["size_bytes"]:
                        raise ArtifactError(
                            f"{where} holds no {name} of {facts['size_bytes']} bytes with sha256 "
                            f"{facts['sha256']}; {_REPAIR}"
                        )
                    link(content, directory / name)
            return workload_store.put_in_place(
                directory,
                workload,
                {"date": fetched.manifest.date, **found.manifest, "fetched": origin},
            )
        except OSError as error:
            raise ArtifactError(
                f"{where} can not be put into {directory.parent}: {error.strerror or error}; free "
                "some space, or put the artifact root elsewhere by --root-dir"
            ) from error
        finally:
            shutil.rmtree(directory, ignore_errors=True)


_REPAIR = "publish and lock it again, or run with --generate-artifacts"


@attrs.frozen
class _Document:
    """What a file of the type `workload` says."""

    manifest: Mapping[str, Any]

    @property
    def versions(self) -> Mapping[str, str]:
        versions: Mapping[str, str] = self.manifest["producer"]["versions"]
        return versions


def _document_of(
    fetched: FetchedModel, case: BenchmarkCase, workload: Workload, where: str
) -> _Document | None:
    """Returns the document of a case's input set.

    Raises:
      ArtifactError: it is that of another workload, or malformed.
    """
    others = []
    for entry in fetched.manifest.files:
        if entry.artifact_type != WORKLOAD_TYPE:
            continue
        found = _read(fetched.files[entry.path], f"{where}: {entry.path}")
        if found.manifest["workload"]["digest"] == workload.digest:
            return found
        if found.manifest["producer"]["benchmark_name"] == case.name:
            others.append(str(found.manifest["workload"]["digest"]))
    if others:
        raise ArtifactError(
            f"{where} is locked, but holds the workload {workload.label}-{others[0][:12]}, where "
            f"this suite's is {workload.id}: the definitions have changed since; {_REPAIR}"
        )
    return None


def _read(path: Path, where: str) -> _Document:
    """Returns a document after a look at all that is used of it."""
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        if manifest["manifest_version"] != MANIFEST_VERSION:
            raise ValueError(
                f"manifest_version is {manifest['manifest_version']!r}, not {MANIFEST_VERSION}"
            )
        if not isinstance(manifest["workload"]["digest"], str):
            raise TypeError("the workload's digest is no text")
        if not all(isinstance(v, str) for v in manifest["producer"]["versions"].values()):
            raise TypeError("a version is no text")
        for key in ("benchmark_name", "module_path", "source_sha256"):
            if not isinstance(manifest["producer"][key], str):
                raise TypeError(f"{key} is no text")
        for name, facts in manifest["files"].items():
            if reason := why_no_object_name(name):
                raise ValueError(f"{name!r} {reason}")
            if not isinstance(facts["sha256"], str) or not isinstance(facts["size_bytes"], int):
                raise TypeError(f"{name}: sha256 or size_bytes is of another type")
        WorkloadCost(**manifest.get("cost", {}))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ArtifactError(
            f"{where} is malformed: {type(error).__name__}: {error}; {_REPAIR}"
        ) from error
    return _Document(manifest)


@contextmanager
def _contents(fetched: FetchedModel, where: str) -> Iterator[dict[str, Path]]:
    """Gives the files of a publication by their sha256, those in archives included."""
    entries = [file for file in fetched.manifest.files if file.artifact_type in WORKLOAD_TYPES]
    found = {file.sha256: fetched.files[file.path] for file in entries}
    packed = [file for file in entries if file.path.endswith((".tgz", ".tar.gz"))]
    parent = fetched.directory.parents[2] / "unpacked"
    if packed:
        parent.mkdir(parents=True, exist_ok=True)
    place = parent if packed else None
    with tempfile.TemporaryDirectory(prefix=".workload-", dir=place) as scratch:
        for index, file in enumerate(packed):
            try:
                members = archives.unpack(fetched.files[file.path], Path(scratch) / str(index))
            except StoreError as error:
                raise ArtifactError(f"{where}: {error}; {_REPAIR}") from error
            found |= {sha256_of(path): path for path in members}
        yield found


@contextmanager
def _alone(workload: Workload) -> Iterator[None]:
    """Keeps other processes from putting the same workload in its place meanwhile."""
    target = workload_store.directory_of(workload)
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(target.parent / f".{workload.id}.lock", timeout=_LOCK_TIMEOUT_S):
            yield
    except Timeout as error:
        raise ArtifactError(
            f"{target}: another process has been putting it in place for {_LOCK_TIMEOUT_S:g} s; "
            "end it, or run again later"
        ) from error


def _in_place(workload: Workload, manifest_sha256: str) -> WorkloadArtifacts | None:
    """Returns what is there, if it is from that publication and undamaged."""
    try:
        there = workload_store.find(workload, locked={manifest_sha256})
    except ArtifactError:
        return None
    if there is None or (there.origin or {}).get("manifest_sha256") != manifest_sha256:
        return None
    return there
