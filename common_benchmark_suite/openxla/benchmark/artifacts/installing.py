"""Installs published workloads and checkpoints where runs look for them.

A publication holds, for each input set, the store's manifest of that workload as a file of the type
`workload`; and the checkpoint's own manifest among the files of the type `checkpoint`. Both name
each of their files by its sha256. The location and names of these files, plain or inside `.tgz`
archives, do not matter: they are found by content. Either exactly the locked bytes are installed,
or nothing.
"""

import json
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout
from msgspec.structs import replace

from openxla.benchmark.artifacts import archives, strict_json, workload_store
from openxla.benchmark.artifacts.published_models import FetchedModel
from openxla.benchmark.artifacts.stores import StoreError
from openxla.benchmark.artifacts.workload_store import (
    ArtifactError,
    WorkloadArtifacts,
    WorkloadManifest,
    is_second,
)
from openxla.benchmark.def_types import BenchmarkCase, Workload
from openxla.benchmark.files import link, new_directory, sha256_of
from openxla.benchmark.models import architectures, checkpoints
from openxla.benchmark.models.architectures.base import Architecture
from openxla.benchmark.models.checkpoints import MANIFEST_FILE

CHECKPOINT_TYPE = "checkpoint"
WORKLOAD_TYPE = "workload"
SECOND_TYPE = "second"
# File types that make up a workload.
WORKLOAD_TYPES = frozenset({WORKLOAD_TYPE, "inputs", "outputs", "truth", "reference", SECOND_TYPE})
_LOCK_TIMEOUT_S = 600.0
_REPAIR = "publish and lock the model again, or run with --generate-artifacts"
# Fits the largest models of the suite, with a margin.
_CHECKPOINT_LIMITS = archives.Limits(total_bytes=256 << 30)


def install_workload(
    fetched: FetchedModel, *, url: str, case: BenchmarkCase, workload: Workload
) -> WorkloadArtifacts | None:
    """Installs a case's published inputs, truth and reference.

    Args:
      fetched: the publication, with all its files of `WORKLOAD_TYPES`.
      url: its URL.
      case: a case with the requested input set.
      workload: the case's workload, as this revision of the suite defines it.

    Returns:
      the artifacts; None if the publication lacks this input set, or was made with other
      versions of a framework whose own generator determines the weights.

    Raises:
      ArtifactError: the publication has another workload, or does not match its manifest.
    """
    where = f"{fetched.manifest.model} at {url}"
    manifest = _manifest_of(fetched, case, workload, where)
    if manifest is None or workload_store.other_versions(workload, manifest.producer.versions):
        return None
    with _installation_lock(workload):
        there = _in_place(workload, fetched.manifest_sha256)
        if there is not None:  # another process was faster
            return there
        try:
            with (
                workload_store.new_directory(workload) as directory,
                _contents(fetched, WORKLOAD_TYPES, where) as contents,
            ):
                for name, facts in manifest.files.items():
                    content = contents.get(facts.sha256)
                    if content is None or content.stat().st_size != facts.size_bytes:
                        raise ArtifactError(
                            f"{where} has no {name} with {facts.size_bytes} bytes and sha256 "
                            f"{facts.sha256}; {_REPAIR}"
                        )
                    link(content, directory / name)
                origin = {
                    "model": fetched.manifest.model,
                    "url": url,
                    "manifest_sha256": fetched.manifest_sha256,
                }
                date = manifest.date or fetched.manifest.date
                installed = replace(manifest, date=date, fetched=origin)
                return workload_store.describe(directory, workload, installed)
        except OSError as error:
            target = workload_store.directory_of(workload)
            raise ArtifactError(
                f"{where} cannot be installed into {target.parent}: {error.strerror or error}; "
                "free some space, or choose another artifact root with --root-dir"
            ) from error


def _manifest_of(
    fetched: FetchedModel, case: BenchmarkCase, workload: Workload, where: str
) -> WorkloadManifest | None:
    """Returns the published manifest of a case's input set.

    Raises:
      ArtifactError: the manifest describes another workload, or is malformed.
    """
    others = []
    for entry in fetched.manifest.files:
        if entry.artifact_type != WORKLOAD_TYPE:
            continue
        text = fetched.files[entry.path].read_bytes()
        try:
            manifest = strict_json.parse(text, WorkloadManifest, where=f"{where}: {entry.path}")
        except StoreError as error:
            raise ArtifactError(f"{error}; {_REPAIR}") from error
        if manifest.workload["digest"] == workload.digest:
            return _without_unpublished(manifest, fetched)
        if manifest.producer.benchmark_name == case.name:
            others.append(manifest.workload["digest"])
    if others:
        raise ArtifactError(
            f"{where} contains workload {workload.label}-{others[0][:12]} instead of "
            f"{workload.id}: the definitions have changed since publication; {_REPAIR}"
        )
    return None


def _without_unpublished(manifest: WorkloadManifest, fetched: FetchedModel) -> WorkloadManifest:
    """Returns the manifest of a workload without its second input if that was not published."""
    if any(entry.artifact_type == SECOND_TYPE for entry in fetched.manifest.files):
        return manifest
    first = {name: facts for name, facts in manifest.files.items() if not is_second(name)}
    if len(first) == len(manifest.files):
        return manifest
    return replace(manifest, files=first, without_second="the second input was not published")


@contextmanager
def _installation_lock(workload: Workload) -> Iterator[None]:
    """Prevents other processes from installing the same workload meanwhile."""
    target = workload_store.directory_of(workload)
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(target.parent / f".{workload.id}.lock", timeout=_LOCK_TIMEOUT_S):
            yield
    except Timeout as error:
        raise ArtifactError(
            f"{target}: another process is still installing these artifacts after "
            f"{_LOCK_TIMEOUT_S:g} s; stop that process, or try again later"
        ) from error


def _in_place(workload: Workload, manifest_sha256: str) -> WorkloadArtifacts | None:
    """Returns the installed artifacts if they come from that publication and are undamaged."""
    try:
        there = workload_store.find(workload, locked={manifest_sha256})
    except ArtifactError:
        return None
    origin = there.origin if there is not None else None
    return there if (origin or {}).get("manifest_sha256") == manifest_sha256 else None


def checkpoint_directory_of(case: BenchmarkCase) -> Path | None:
    """Returns the directory of the checkpoint of a case's model; None if it has none.

    Raises:
      DefinitionError: the architecture or a parameter does not exist.
    """
    architecture = _architecture_of(case)
    if architecture is None:
        return None
    parameters = architecture.complete(case.model.model_parameters)
    return checkpoints.directory_of(architecture, parameters)


def lacks_checkpoint(case: BenchmarkCase) -> bool:
    """Returns whether the checkpoint of a case's model is missing."""
    target = checkpoint_directory_of(case)
    return target is not None and not (target / MANIFEST_FILE).is_file()


def install_checkpoint(fetched: FetchedModel, *, url: str, case: BenchmarkCase) -> Path | None:
    """Installs a model's published checkpoint, unless there is one.

    Args:
      fetched: the publication, with its files of `CHECKPOINT_TYPE`.
      url: its URL.
      case: a case of the model.

    Returns:
      its directory; None if the publication or the model has no checkpoint.

    Raises:
      ArtifactError: the checkpoint belongs to another model, or is damaged.
    """
    target, where = checkpoint_directory_of(case), f"{fetched.manifest.model} at {url}"
    if target is None or (target / MANIFEST_FILE).is_file():
        return target
    with _contents(fetched, {CHECKPOINT_TYPE}, where, _CHECKPOINT_LIMITS) as contents:
        manifests = [path for path in contents.values() if path.name == MANIFEST_FILE]
        if not manifests:
            return None
        manifest = min(manifests, key=lambda path: len(path.parts))
        digests = _checked_digests(case, manifest, where)
        with new_directory(target, whole_with=MANIFEST_FILE) as directory:
            for name, sha256 in digests.items():
                if sha256 not in contents:
                    raise ArtifactError(
                        f"{where}: the checkpoint's {name} does not match its manifest; {_REPAIR}"
                    )
                link(contents[sha256], directory / name)
            link(manifest, directory / MANIFEST_FILE)
    return target


def _architecture_of(case: BenchmarkCase) -> Architecture | None:
    name = case.model.model_impl.architecture
    return None if name is None else architectures.get(name)


def _checked_digests(case: BenchmarkCase, manifest: Path, where: str) -> Mapping[str, str]:
    """Returns the sha256 of each checkpoint file, after checking that it fits the case."""
    architecture = _architecture_of(case)
    assert architecture is not None
    known = checkpoints.facts_of(architecture, architecture.complete(case.model.model_parameters))
    try:
        stored = json.loads(manifest.read_text(encoding="utf-8"))
        differing = sorted(key for key, value in known.items() if stored.get(key) != value)
        digests = {str(name): str(facts["sha256"]) for name, facts in stored["files"].items()}
        strict_json.check_names(digests, MANIFEST_FILE)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ArtifactError(
            f"{where}: the checkpoint's manifest is malformed: {type(error).__name__}: {error}; "
            f"{_REPAIR}"
        ) from error
    if differing:
        key = differing[0]
        raise ArtifactError(
            f"{where} contains a different checkpoint: its {key} is "
            f"{stored.get(key)!r}, but {case.model.name} has {known[key]!r}; {_REPAIR}"
        )
    return digests


@contextmanager
def _contents(
    fetched: FetchedModel, types: Collection[str], where: str, limits: archives.Limits | None = None
) -> Iterator[dict[str, Path]]:
    """Yields the files of some types by sha256, including those in archives."""
    entries = [file for file in fetched.manifest.files if file.artifact_type in types]
    by_sha = {file.sha256: fetched.files[file.path] for file in entries}
    packed = [file for file in entries if file.path.endswith((".tgz", ".tar.gz"))]
    if not packed:
        yield by_sha
        return
    # In the cache, not in /tmp, so that files can be linked and weights fit.
    parent = fetched.directory.parents[2] / "unpacked"
    parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".unpacked-", dir=parent) as scratch:
        for index, file in enumerate(packed):
            target = Path(scratch) / str(index)
            try:
                members = archives.unpack(fetched.files[file.path], target, limits=limits)
            except StoreError as error:
                raise ArtifactError(f"{where}: {error}; {_REPAIR}") from error
            by_sha |= {sha256_of(path): path for path in members}
        yield by_sha
