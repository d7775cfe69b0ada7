"""The manifest of a model's artifacts: files, digests, producers and failed exports.

It is stored next to the files as `manifest.json` and published last, so all files that a manifest
names exist.
"""

import datetime
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from msgspec import Meta
from msgspec.structs import force_setattr

from openxla.benchmark.artifacts import strict_json
from openxla.benchmark.artifacts.strict_json import Record, Sha256, Size
from openxla.benchmark.files import write_atomically

MANIFEST_FILE = "manifest.json"
CLAIM_FILE = "claim.json"
MANIFEST_VERSION = 1

ArtifactType = Annotated[str, Meta(pattern=r"^[a-z][a-z0-9_]*\Z")]
ModelName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.+-]*\Z")]


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
        paths = [file.path for file in files]
        strict_json.check_names(paths)
        for path in (MANIFEST_FILE, CLAIM_FILE):
            if path in paths:
                raise ValueError(f"the path {path!r} is reserved")

    @property
    def size_bytes(self) -> int:
        """Total size of all files."""
        return sum(file.size_bytes for file in self.files)

    @property
    def producers(self) -> dict[str, str]:
        """Package -> version, over all files; several versions of a package are listed together."""
        found: dict[str, set[str]] = {}
        for file in self.files:
            for package, version in file.producers.items():
                found.setdefault(package, set()).add(version)
        return {package: ", ".join(sorted(found[package])) for package in sorted(found)}

    @property
    def date(self) -> str:
        """When the latest file was made; empty if there is none."""
        return max((file.date for file in self.files), default="")

    def to_bytes(self) -> bytes:
        """Returns the manifest as a file; equal manifests give equal bytes."""
        return strict_json.to_bytes(self)


def parse(text: bytes, *, where: str) -> Manifest:
    """Returns the manifest in a document; messages call it `where`.

    Raises:
      MalformedError: an entry is malformed; the message names it.
    """
    return strict_json.parse(text, Manifest, where=where)


def read(directory: Path) -> Manifest:
    """Returns the manifest of a directory of artifacts.

    Raises:
      MalformedError: the manifest is missing or malformed.
    """
    return strict_json.read(directory / MANIFEST_FILE, Manifest)


def write(directory: Path, manifest: Manifest) -> Path:
    """Writes the manifest of a directory of artifacts; returns its path."""
    path = directory / MANIFEST_FILE
    write_atomically(path, manifest.to_bytes())
    return path


def _check_date(date: str, what: str) -> None:
    try:
        aware = datetime.datetime.fromisoformat(date).tzinfo is not None
    except ValueError:
        aware = False
    if not aware:
        raise ValueError(f"date {date!r} of {what!r} is not a date with time and offset (ISO 8601)")
