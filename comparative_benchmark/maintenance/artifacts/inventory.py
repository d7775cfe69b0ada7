"""Contents of the local cache: models, their sizes, locks and users."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from openxla.benchmark.artifacts import manifests
from openxla.benchmark.artifacts.cache import Cache, is_unchanged
from openxla.benchmark.artifacts.manifests import MANIFEST_FILE, Manifest
from openxla.benchmark.artifacts.stores import StoreError
from openxla.benchmark.files import sha256_of
from openxla.benchmark.installation import root_dir

_MANIFEST = "manifest.json"


def damaged_files() -> tuple[int, list[Path]]:
    """Returns the number of files compared with their manifests, and those that differ.

    An unreadable manifest counts as damaged itself; its files are not checked.
    """
    described = list(_described())
    return len(described), [path for path, facts in described if not _matches(path, facts)]


def _described() -> Iterator[tuple[Path, Mapping[str, Any] | None]]:
    """Yields files with their expected properties, and None for an invalid manifest."""
    for kind in ("workloads", "checkpoints"):
        for manifest in sorted((root_dir() / kind).glob(f"[!.]*/{_MANIFEST}")):
            try:
                files = json.loads(manifest.read_text(encoding="utf-8"))["files"]
                described = [(manifest.parent / name, dict(facts)) for name, facts in files.items()]
            except (OSError, ValueError, KeyError, TypeError, AttributeError):
                yield manifest, None
                continue
            yield from described


def _matches(path: Path, facts: Mapping[str, Any] | None) -> bool:
    if facts is None:
        return False
    try:
        same_size = path.stat().st_size == facts.get("size_bytes")
        return same_size and sha256_of(path) == facts.get("sha256")
    except OSError:
        return False


@attrs.frozen(kw_only=True)
class CachedModel:
    """One version of a model's artifacts.

    Attributes:
      model: its name.
      view: the directory in which its files have their names.
      manifest: the published manifest; None if it is damaged.
      manifest_sha256: digest that identifies this version.
      present: paths of the intact files in the cache; others were not fetched, or are damaged.
      size_bytes: size of these files; other models may share them.
      url: URL in a lock file; None if it is not locked.
      workloads: workloads in the root directory whose inputs and truth came from it.
    """

    model: str
    view: Path
    manifest: Manifest | None
    manifest_sha256: str
    present: tuple[str, ...]
    size_bytes: int
    url: str | None
    workloads: tuple[str, ...]

    @property
    def digests(self) -> set[str]:
        """sha256 of all its files and of its manifest."""
        files = self.manifest.files if self.manifest else ()
        return {self.manifest_sha256, *(file.sha256 for file in files)}

    @property
    def is_complete(self) -> bool:
        """Whether every published file is present."""
        return self.manifest is not None and len(self.present) == len(self.manifest.files)

    def as_json(self) -> dict[str, Any]:
        """Returns the model as a JSON value."""
        return {
            "model": self.model,
            "directory": str(self.view),
            "manifest_sha256": self.manifest_sha256,
            "url": self.url,
            "locked": self.url is not None,
            "complete": self.is_complete,
            "size_bytes": self.size_bytes,
            "files": list(self.present),
            "workloads": list(self.workloads),
        }


def models(cache: Cache) -> list[CachedModel]:
    """Returns the models in a cache, sorted by name.

    Raises:
      MalformedError: a lock file is damaged.
    """
    urls = {lock.manifest_sha256: lock.url for lock in manifests.read_lock_files().values()}
    users: dict[str, list[str]] = {}
    for name, sha256 in _installed():
        users.setdefault(sha256, []).append(name)
    return [_model(view, urls, users) for view in cache.views()]


def holders(models: Sequence[CachedModel], sha256: str) -> list[str]:
    """Returns the files with the given content, as `MODEL/path`."""
    names = []
    for model in models:
        if model.manifest_sha256 == sha256:
            names.append(f"{model.model}/{MANIFEST_FILE}")
        files = model.manifest.files if model.manifest else ()
        names += [f"{model.model}/{file.path}" for file in files if file.sha256 == sha256]
    return names


def _model(view: Path, urls: dict[str, str], users: dict[str, list[str]]) -> CachedModel:
    manifest: Manifest | None = None
    sha256, present, size = "", [], 0
    try:
        text = (view / MANIFEST_FILE).read_bytes()
        sha256 = hashlib.sha256(text).hexdigest()
        manifest = manifests.parse_manifest(text, where=str(view / MANIFEST_FILE))
    except (OSError, StoreError):
        pass
    for file in manifest.files if manifest else ():
        if is_unchanged(view / file.path, file.sha256, file.size_bytes):
            present.append(file.path)
            size += file.size_bytes
    return CachedModel(
        model=view.parent.name,
        view=view,
        manifest=manifest,
        manifest_sha256=sha256,
        present=tuple(present),
        size_bytes=size,
        url=urls.get(sha256),
        workloads=tuple(sorted(users.get(sha256, ()))),
    )


def _installed() -> Iterator[tuple[str, str]]:
    """Yields fetched workloads, with the sha256 of the manifest that they came from."""
    for path in sorted((root_dir() / "workloads").glob(f"[!.]*/{MANIFEST_FILE}")):
        try:
            fetched = json.loads(path.read_text(encoding="utf-8")).get("fetched")
            if fetched is not None:
                yield path.parent.name, str(fetched["manifest_sha256"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue  # damaged: `verify` reports it
