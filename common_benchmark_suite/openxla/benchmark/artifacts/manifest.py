"""The manifest of a model's artifacts: what is there, what it should be, who made it, what failed.

It lies beside the files as `manifest.json` and is published last: where there is a manifest, all
that it names is there.
"""

import itertools
from collections.abc import Iterable, Mapping
from pathlib import Path

import attrs

from openxla.benchmark.artifacts import strict_json
from openxla.benchmark.files import write_atomically

MANIFEST_FILE = "manifest.json"
CLAIM_FILE = "claim.json"
MANIFEST_VERSION = 1

_is_type = strict_json.matches(r"[a-z][a-z0-9_]*", "a type of artifact (letters a-z, digits, _)")
_is_model = strict_json.matches(r"[A-Za-z0-9][A-Za-z0-9_.+-]*", "the name of a model")


@attrs.frozen(kw_only=True)
class ArtifactFile:
    """One file.

    Attributes:
      path: below the model's directory, with slashes.
      artifact_type: a value of `ModelArtifactType`, or `inputs`, `outputs`, `checkpoint` ...
      sha256: of the content.
      size_bytes: of the content.
      producers: package to version, of all that made it.
      date: when it was made.
      not_run: why nothing has run it yet, as a program for a device that its maker lacked; None if
        it was read back and its outputs were right.
    """

    path: str = attrs.field(validator=strict_json.is_object_name)
    artifact_type: str = attrs.field(validator=_is_type)
    sha256: str = attrs.field(validator=strict_json.is_sha256)
    size_bytes: int = attrs.field(validator=strict_json.is_size)
    producers: Mapping[str, str] = attrs.field(converter=strict_json.sorted_copy, hash=False)
    date: str = attrs.field(validator=strict_json.is_date)
    not_run: str | None = None


@attrs.frozen(kw_only=True)
class ExportFailure:
    """Why an artifact is not there."""

    artifact_type: str = attrs.field(validator=_is_type)
    reason: str
    producers: Mapping[str, str] = attrs.field(converter=strict_json.sorted_copy, hash=False)
    date: str = attrs.field(validator=strict_json.is_date)


def _by_path(files: Iterable[ArtifactFile]) -> tuple[ArtifactFile, ...]:
    return tuple(sorted(files, key=lambda file: file.path))


def _by_type(failures: Iterable[ExportFailure]) -> tuple[ExportFailure, ...]:
    return tuple(sorted(failures, key=lambda failure: (failure.artifact_type, failure.reason)))


@attrs.frozen(kw_only=True)
class Manifest:
    """All artifacts of a model, in the order of their paths."""

    model: str = attrs.field(validator=_is_model)
    files: tuple[ArtifactFile, ...] = attrs.field(converter=_by_path)
    failures: tuple[ExportFailure, ...] = attrs.field(default=(), converter=_by_type)
    manifest_version: int = MANIFEST_VERSION

    def __attrs_post_init__(self) -> None:
        paths = [file.path for file in self.files]
        for path, following in itertools.pairwise(paths):
            if path == following:
                raise ValueError(f"the path {path!r} is there twice")
        directories = strict_json.parents_of(paths)
        for path in paths:
            if path in directories:
                raise ValueError(f"the path {path!r} is both a file and a directory")
            if path in (MANIFEST_FILE, CLAIM_FILE):
                raise ValueError(f"the path {path!r} is not for artifacts")

    @property
    def size_bytes(self) -> int:
        """Size of all files together."""
        return sum(file.size_bytes for file in self.files)

    @property
    def producers(self) -> dict[str, str]:
        """Package to version, over all files; several versions of one are listed together."""
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
    """Returns the manifest in a document; `where` is what messages call it.

    Raises:
      MalformedError: an entry is not what it should be; the message names it.
    """
    return strict_json.parse(text, Manifest, where=where)


def read(directory: Path) -> Manifest:
    """Returns the manifest of a directory of artifacts.

    Raises:
      MalformedError: it is missing, or malformed.
    """
    return strict_json.read(directory / MANIFEST_FILE, Manifest)


def write(directory: Path, manifest: Manifest) -> Path:
    """Writes the manifest of a directory of artifacts; returns its path."""
    path = directory / MANIFEST_FILE
    write_atomically(path, manifest.to_bytes())
    return path
