"""Manifests of published artifacts, and the lock files that name them.

A manifest names a model's files, digests, producers and failed exports. It is stored next to the
files as `manifest.json` and published last, so all files that a manifest names exist. A lock file
names for each model the URL of its artifacts and the sha256 of its manifest. Lock files are checked
in under `artifacts/locks/`, so that a run of one revision always uses the same artifacts.
"""

import datetime
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import attrs
import msgspec
from filelock import FileLock
from msgspec import Meta
from msgspec.structs import force_setattr

from openxla.benchmark.artifacts import strict_json
from openxla.benchmark.artifacts.strict_json import MalformedError, Record, Sha256, Size
from openxla.benchmark.def_types import BenchmarkCase, DefinitionError
from openxla.benchmark.files import write_atomically
from openxla.benchmark.installation import locks_dir

MANIFEST_FILE = "manifest.json"
CLAIM_FILE = "claim.json"
MANIFEST_VERSION = 1

ArtifactType = Annotated[str, Meta(pattern=r"^[a-z][a-z0-9_]*\Z")]
ModelName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.+-]*\Z")]

LOCK_VERSION = 1
_LOCK_TIMEOUT_S = 60.0


class ArtifactFile(Record, frozen=True, kw_only=True):
    """One file.

    Attributes:
      path: relative to the model's directory, with slashes.
      artifact_type: a value of `ModelArtifactType`, or `inputs`, `outputs`, `checkpoint` ...
      sha256: digest of the content.
      size_bytes: size of the content.
      producers: package -> version, for all packages that made it.
      date: when it was made.
      not_run: why nothing has run it yet, e.g. because its producer lacked the device; None if it
        was read back and its outputs were right.
    """

    path: str
    artifact_type: ArtifactType
    sha256: Sha256
    size_bytes: Size
    producers: Mapping[str, str]
    date: str
    not_run: str | None = None

    def __post_init__(self) -> None:
        _check_date(self.date, self.path)


class ExportFailure(Record, frozen=True, kw_only=True):
    """Why an artifact is missing."""

    artifact_type: ArtifactType
    reason: str
    producers: Mapping[str, str]
    date: str

    def __post_init__(self) -> None:
        _check_date(self.date, self.artifact_type)


class Manifest(Record, frozen=True, kw_only=True):
    """All artifacts of a model, in the order of their paths."""

    model: ModelName
    files: tuple[ArtifactFile, ...]
    failures: tuple[ExportFailure, ...] = ()
    manifest_version: int = MANIFEST_VERSION

    def __post_init__(self) -> None:
        files = sorted(self.files, key=lambda file: file.path)
        failures = sorted(self.failures, key=lambda item: (item.artifact_type, item.reason))
        force_setattr(self, "files", tuple(files))
        force_setattr(self, "failures", tuple(failures))
        strict_json.check_names([file.path for file in files], MANIFEST_FILE, CLAIM_FILE)

    @property
    def size_bytes(self) -> int:
        """Total size of all files."""
        return sum(file.size_bytes for file in self.files)

    @property
    def producers(self) -> dict[str, str]:
        """Package -> version, over all files; several versions of a package are listed together."""
        versions: dict[str, set[str]] = {}
        for file in self.files:
            for package, version in file.producers.items():
                versions.setdefault(package, set()).add(version)
        return {package: ", ".join(sorted(versions[package])) for package in sorted(versions)}

    @property
    def date(self) -> str:
        """When the latest file was made; empty without files."""
        dates = [file.date for file in self.files]
        return max(dates, key=datetime.datetime.fromisoformat, default="")

    def to_bytes(self) -> bytes:
        """Returns the manifest as a file; equal manifests give equal bytes."""
        return strict_json.to_bytes(self)


def parse_manifest(text: bytes, *, where: str) -> Manifest:
    """Returns the manifest in a document; messages call it `where`.

    Raises:
      MalformedError: an entry is malformed; the message names it.
    """
    return strict_json.parse(text, Manifest, where=where)


def read_manifest(directory: Path) -> Manifest:
    """Returns the manifest of a directory of artifacts.

    Raises:
      MalformedError: the manifest is missing or malformed.
    """
    return strict_json.read(directory / MANIFEST_FILE, Manifest)


def write_manifest(directory: Path, manifest: Manifest) -> Path:
    """Writes the manifest of a directory of artifacts; returns its path."""
    path = directory / MANIFEST_FILE
    write_atomically(path, manifest.to_bytes())
    return path


def _check_date(date: str, key: str) -> None:
    try:
        aware = datetime.datetime.fromisoformat(date).tzinfo is not None
    except ValueError:
        aware = False
    if not aware:
        raise ValueError(f"{key!r}: expected an ISO 8601 date with time and offset, got {date!r}")


def with_urls(cases: Sequence[BenchmarkCase]) -> list[BenchmarkCase]:
    """Returns cases whose models have the `artifacts_dir_url` of their lock.

    A model without a lock keeps the URL of its definition (see `locked_urls`).

    Raises:
      DefinitionError: a lock file is damaged; the message names it.
    """
    if not any(locks_dir().glob("*.json")):
        return list(cases)
    locks = usable_locks()
    models = {
        case.model.name: attrs.evolve(case.model, artifacts_dir_url=locks[case.model.name].url)
        for case in cases
        if case.model.name in locks
    }
    return [attrs.evolve(case, model=models.get(case.model.name, case.model)) for case in cases]


class LockedModel(Record, frozen=True, kw_only=True):
    """The published artifacts of one model.

    Attributes:
      url: URL of the directory with the manifest.
      manifest_sha256: digest of the manifest, which pins all other files.
      manifest_size_bytes: size of the manifest.
      size_bytes: total size of the files in the manifest.
      producers: package -> version.
      date: when the latest file was made; empty without files.
    """

    url: Annotated[str, msgspec.Meta(pattern=r"^\S+\Z")]
    manifest_sha256: Sha256
    manifest_size_bytes: Size
    size_bytes: Size
    producers: Mapping[str, str]
    date: str


class LockFile(Record, frozen=True, kw_only=True):
    """Locks by model."""

    models: dict[str, LockedModel]
    lock_version: int = LOCK_VERSION


def locked_model(url: str, manifest_text: bytes) -> tuple[str, LockedModel]:
    """Returns a model's name and lock.

    Args:
      url: URL of the directory where it is published.
      manifest_text: its manifest, as published.

    Raises:
      MalformedError: the text is not a manifest.
    """
    manifest = parse_manifest(manifest_text, where=f"{url}/{MANIFEST_FILE}")
    return manifest.model, LockedModel(
        url=url,
        manifest_sha256=hashlib.sha256(manifest_text).hexdigest(),
        manifest_size_bytes=len(manifest_text),
        size_bytes=manifest.size_bytes,
        producers=manifest.producers,
        date=manifest.date,
    )


def read_lock_file(path: Path) -> LockFile:
    """Returns a lock file.

    Raises:
      MalformedError: the file cannot be read, or an entry is malformed; the message names it.
    """
    return strict_json.read(path, LockFile)


def usable_locks() -> dict[str, LockedModel]:
    """Returns all locks.

    Raises:
      DefinitionError: a lock file is damaged; the message names it, and the remedy.
    """
    try:
        return read_lock_files()
    except MalformedError as error:
        raise DefinitionError(
            f"{error}. Fix the file, restore it from version control, or remove it and lock again "
            "with `cbs artifacts lock URL... -o FILE`"
        ) from error


def read_lock_files(directory: Path | None = None) -> dict[str, LockedModel]:
    """Returns the locks of all lock files in a directory; empty without lock files.

    Raises:
      MalformedError: a file is malformed, or two files lock one model differently.
    """
    locks: dict[str, LockedModel] = {}
    origin: dict[str, Path] = {}
    for path in sorted((directory or locks_dir()).glob("*.json")):
        for model, entry in read_lock_file(path).models.items():
            if locks.setdefault(model, entry) != entry:
                raise MalformedError(
                    f"{path} locks {model} at {entry.url}, but {origin[model].name} locks it at "
                    f"{locks[model].url}; remove one of the locks"
                )
            origin.setdefault(model, path)
    return locks


def update_lock_file(path: Path, entries: Mapping[str, LockedModel]) -> LockFile:
    """Adds or replaces entries of a lock file; returns its new content.

    Other entries stay. Concurrent updates are safe. The same entries give the same bytes.

    Raises:
      MalformedError: the existing file is malformed; it is not changed.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.parent / f".{path.name}.lock", timeout=_LOCK_TIMEOUT_S):
        old = read_lock_file(path).models if path.exists() else {}
        new = LockFile(models=dict(sorted({**old, **entries}.items())))
        write_atomically(path, strict_json.to_bytes(new))
    return new
