"""Publishes a directory of artifacts to a store: written once, verified, manifest last."""

import enum
import functools
import hashlib
import json
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import attrs

from openxla.benchmark.artifacts import manifests
from openxla.benchmark.artifacts.manifests import (
    CLAIM_FILE,
    MANIFEST_FILE,
    LockedModel,
    locked_model,
)
from openxla.benchmark.artifacts.stores import (
    AlreadyExistsError,
    DamagedError,
    LocalFile,
    LocalStore,
    Meter,
    NotFoundError,
    Store,
    StoreError,
    Stores,
    TransferOptions,
)
from openxla.benchmark.artifacts.transfers import run_all

T = TypeVar("T")

_CHUNK_BYTES = 1 << 20

Item = TypeVar("Item")


class PublishError(StoreError):
    """A model was not published: our manifest is not visible; the message gives the reason."""


class ConflictError(PublishError):
    """Other content is published, or is being published, under this URL."""


class Action(enum.Enum):
    """The action that publishing takes for a file."""

    UPLOADED = "uploaded"
    PRESENT = "present"
    WOULD_UPLOAD = "would upload"


@attrs.frozen(kw_only=True)
class PublishedFile:
    """One file of a report."""

    url: str
    size_bytes: int
    action: Action


@attrs.frozen(kw_only=True)
class PublishReport:
    """The result of publishing.

    Attributes:
      url: URL of the directory in the store.
      files: ordered by path, the manifest last.
      strays: files in the directory that are not in the manifest; they are kept.
      lock: entry for a lock file.
      model: name of the model.
    """

    url: str
    files: tuple[PublishedFile, ...]
    strays: tuple[str, ...]
    model: str
    lock: LockedModel


@attrs.frozen(kw_only=True)
class PublishOptions(TransferOptions):
    """Publishing options.

    Attributes:
      dry_run: only report what would be done.
      remove_local: remove local files after the store has confirmed their digests.
    """

    parallel: int = attrs.field(default=4, validator=attrs.validators.ge(1))
    read_timeout_s: float = attrs.field(default=60.0, validator=attrs.validators.gt(0))
    dry_run: bool = False
    remove_local: bool = False


def publish(directory: Path, url: str, options: PublishOptions | None = None) -> PublishReport:
    """Publishes the artifacts of a directory with a manifest under a URL.

    A claim is written first, which announces the manifest: if two processes publish different
    content under one URL, one of them stops here. Then the files are uploaded in parallel, the
    store confirms their digests, and the manifest makes them visible. Files that exist with the
    same content are skipped, so the same command completes an interrupted publication.

    Raises:
      MalformedError: the manifest cannot be read.
      ConflictError: the URL has other content.
      PublishError: a file does not match the manifest, or cannot be written.
    """
    options = options or PublishOptions()
    manifest = manifests.read_manifest(directory)
    stores = Stores(options)
    store = stores.at(url)
    if isinstance(store, LocalStore) and store.directory.resolve() == directory.resolve():
        raise PublishError(f"{directory} cannot be published to itself; give another directory")
    run_each = functools.partial(_run_each, stores, options)
    local = run_each(functools.partial(_checked, directory), {f.path: f for f in manifest.files})
    document = digested(directory / MANIFEST_FILE)
    model, lock = locked_model(store.url, document.path.read_bytes())
    if document.sha256 != lock.manifest_sha256:
        raise PublishError(f"{document.path} changed while it was being read")
    everything = {**dict(sorted(local.items())), MANIFEST_FILE: document}
    if options.dry_run:
        actions = run_each(functools.partial(_plan, store), everything)
    else:
        meter = Meter(
            total_bytes=sum(file.size_bytes for file in everything.values()),
            total_files=len(everything),
            on_progress=options.on_progress,
        )
        put = functools.partial(_put, store, options, meter)
        run_each(functools.partial(_claim, store), {CLAIM_FILE: document})
        options.notify("claimed", CLAIM_FILE)
        actions = run_each(put, local)
        options.notify("files", model)
        actions |= run_each(put, {MANIFEST_FILE: document})
        options.notify("manifest", model)
    strays = sorted(
        path.relative_to(directory).as_posix()
        for path in directory.rglob("*")
        if not path.is_dir() and path.relative_to(directory).as_posix() not in everything
    )
    if options.remove_local and not options.dry_run:
        _remove(directory, everything)
    return PublishReport(
        url=store.url,
        files=tuple(
            PublishedFile(url=store.url_of(name), size_bytes=file.size_bytes, action=actions[name])
            for name, file in everything.items()
        ),
        strays=tuple(strays),
        model=model,
        lock=lock,
    )


def digested(path: Path) -> LocalFile:
    """Returns a file with the digests that stores confirm, computed in one pass."""
    sha256, md5, size = hashlib.sha256(), hashlib.md5(usedforsecurity=False), 0
    with path.open("rb") as file:
        while piece := file.read(_CHUNK_BYTES):
            sha256.update(piece)
            md5.update(piece)
            size += len(piece)
    return LocalFile(path=path, size_bytes=size, sha256=sha256.hexdigest(), md5=md5.digest())


def _run_each(
    stores: Stores,
    options: PublishOptions,
    task: Callable[[str, Item], T],
    items: Mapping[str, Item],
) -> dict[str, T]:
    """Runs a task for each item in parallel; raises conflicts in preference to other errors."""
    tasks = {name: functools.partial(task, name, item) for name, item in items.items()}
    results, errors = run_all(tasks, parallel=options.parallel, deadline=stores.deadline)
    for error in errors.values():
        if isinstance(error, ConflictError):
            raise error
    if errors:
        name, error = next(iter(errors.items()))
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        # The last request may have succeeded, with only its response lost.
        state = "the manifest may be visible" if name == MANIFEST_FILE else "nothing is visible yet"
        raise PublishError(f"{name}: {error}{more}; {state}; run the same command again") from error
    return results


def _checked(directory: Path, name: str, file: manifests.ArtifactFile) -> LocalFile:
    """Returns a file of a directory, after checking it against the manifest."""
    path = directory / name
    if not path.is_file() or path.is_symlink():
        raise PublishError(f"{path} is in the manifest, but is not a file")
    local = digested(path)
    if (local.size_bytes, local.sha256) != (file.size_bytes, file.sha256):
        raise PublishError(f"{path} does not match the manifest; generate it again")
    return local


def _claim(store: Store, name: str, document: LocalFile) -> None:
    """Announces our manifest, unless another one has been announced."""
    with tempfile.TemporaryDirectory(prefix="cbs-publish-") as directory:
        path = Path(directory) / name
        path.write_text(json.dumps({"manifest_sha256": document.sha256}) + "\n")
        try:
            _write_once(store, name, digested(path), lambda _: None)
        except ConflictError as error:
            raise ConflictError(
                f"{store.url} already contains another publication (perhaps incomplete); publish "
                "under another version, or finish the other publication"
            ) from error


def _put(store: Store, options: PublishOptions, meter: Meter, name: str, file: LocalFile) -> Action:
    options.notify("upload", name)
    action = _write_once(store, name, file, meter.moved)
    options.notify("confirmed", name)
    meter.finished_file()
    return action


def _plan(store: Store, name: str, file: LocalFile) -> Action:
    """Returns what `_put` would do."""
    try:
        return _present(store, name, file)
    except NotFoundError:
        return Action.WOULD_UPLOAD


def _write_once(store: Store, name: str, file: LocalFile, advance: Callable[[int], None]) -> Action:
    """Writes a file and has the store confirm its digest."""
    try:
        store.put(name, file, advance)
    except AlreadyExistsError:
        # Written by another process, an earlier run, or an attempt whose response was lost.
        return _present(store, name, file)
    store.check(name, file)
    return Action.UPLOADED


def _present(store: Store, name: str, file: LocalFile) -> Action:
    try:
        store.check(name, file)
    except DamagedError as error:
        raise ConflictError(
            f"{store.url_of(name)} is already published with different content ({error}); "
            "artifacts are written once, so publish under another version"
        ) from error
    return Action.PRESENT


def _remove(directory: Path, files: Mapping[str, LocalFile]) -> None:
    """Removes published files, and directories that are then empty."""
    for file in files.values():
        file.path.unlink()
    below = [path for path in directory.rglob("*") if path.is_dir()]
    for path in (*sorted(below, reverse=True), directory):
        if not any(path.iterdir()):
            path.rmdir()
