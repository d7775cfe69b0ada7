"""Lock files: the exact published artifacts that the suite's models use.

A lock file names for each model the URL of its artifacts and the sha256 of its manifest, which in
turn names the sha256 of each file. They are checked in under `artifacts/locks/`, so that a run of
one revision always uses the same artifacts.
"""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import attrs
import msgspec
from filelock import FileLock

from openxla.benchmark.artifacts import manifest as manifests
from openxla.benchmark.artifacts import strict_json
from openxla.benchmark.artifacts.strict_json import MalformedError, Record, Sha256, Size
from openxla.benchmark.def_types import BenchmarkCase, DefinitionError
from openxla.benchmark.files import write_atomically
from openxla.benchmark.root import locks_dir


def with_urls(cases: Sequence[BenchmarkCase]) -> list[BenchmarkCase]:
    """Returns cases whose models have the `artifacts_dir_url` of their lock.

    A model without a lock keeps the URL of its definition (see `published_urls`).

    Raises:
      DefinitionError: a lock file is damaged; the message names it.
    """
    if not any(locks_dir().glob("*.json")):
        return list(cases)
    # Imported late: the libraries it uses take longer to import than all definitions.
    from openxla.benchmark.artifacts import lock_file
    from openxla.benchmark.artifacts.stores import StoreError

    try:
        locks = lock_file.read_all()
    except StoreError as error:
        raise DefinitionError(
            f"{error}. Fix the file, restore it from version control, or remove it and lock again "
            "with `cbs artifacts lock URL... -o FILE`"
        ) from error
    models = {
        case.model.name: attrs.evolve(case.model, artifacts_dir_url=locks[case.model.name].url)
        for case in cases
        if case.model.name in locks
    }
    return [attrs.evolve(case, model=models.get(case.model.name, case.model)) for case in cases]


LOCK_VERSION = 1
_LOCK_TIMEOUT_S = 60.0


class LockedModel(Record, frozen=True, kw_only=True):
    """The published artifacts of one model.

    Attributes:
      url: URL of the directory with the manifest.
      manifest_sha256: digest of the manifest, which pins all other files.
      manifest_size_bytes: size of the manifest.
      size_bytes: total size of the files in the manifest.
      producers: package -> version.
      date: when the latest file was made; empty if there is none.
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


def locked(url: str, manifest_text: bytes) -> tuple[str, LockedModel]:
    """Returns a model's name and lock.

    Args:
      url: URL of the directory where it is published.
      manifest_text: its manifest, as published.

    Raises:
      MalformedError: the text is not a manifest.
    """
    manifest = manifests.parse(manifest_text, where=f"{url}/{manifests.MANIFEST_FILE}")
    return manifest.model, LockedModel(
        url=url,
        manifest_sha256=hashlib.sha256(manifest_text).hexdigest(),
        manifest_size_bytes=len(manifest_text),
        size_bytes=manifest.size_bytes,
        producers=manifest.producers,
        date=manifest.date,
    )


def read(path: Path) -> LockFile:
    """Returns a lock file.

    Raises:
      MalformedError: the file cannot be read, or an entry is malformed; the message names it.
    """
    return strict_json.read(path, LockFile)


def read_all(directory: Path | None = None) -> dict[str, LockedModel]:
    """Returns the locks of all lock files in a directory; empty without lock files.

    Raises:
      MalformedError: a file is malformed, or two files lock one model differently.
    """
    found: dict[str, LockedModel] = {}
    origin: dict[str, Path] = {}
    for path in sorted((directory or locks_dir()).glob("*.json")):
        for model, entry in read(path).models.items():
            if found.setdefault(model, entry) != entry:
                raise MalformedError(
                    f"{path} locks {model} at {entry.url}, but {origin[model].name} at "
                    f"{found[model].url}; remove one of them"
                )
            origin.setdefault(model, path)
    return found


def update(path: Path, entries: Mapping[str, LockedModel]) -> LockFile:
    """Adds or replaces entries of a lock file; returns its new content.

    Other entries stay. Concurrent updates are safe. The same entries give the same bytes.

    Raises:
      MalformedError: the existing file is malformed; it is not changed.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.parent / f".{path.name}.lock", timeout=_LOCK_TIMEOUT_S):
        old = read(path).models if path.exists() else {}
        new = LockFile(models=dict(sorted({**old, **entries}.items())))
        write_atomically(path, strict_json.to_bytes(new))
    return new
