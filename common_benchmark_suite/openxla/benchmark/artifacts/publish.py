"""A directory of artifacts into a store: written once, checked there, the manifest last."""

import enum
import functools
import hashlib
import json
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import attrs

from openxla.benchmark.artifacts import manifest as manifests
from openxla.benchmark.artifacts.lock_file import LockedModel, locked
from openxla.benchmark.artifacts.manifest import CLAIM_FILE, MANIFEST_FILE
from openxla.benchmark.artifacts.parallel import run_all
from openxla.benchmark.artifacts.progress import Meter
from openxla.benchmark.artifacts.stores import (
    AlreadyExistsError,
    DamagedError,
    LocalFile,
    NotFoundError,
    Store,
    StoreError,
    Stores,
    TransferOptions,
)

T = TypeVar("T")

_CHUNK_BYTES = 1 << 20


class PublishError(StoreError):
    """A model was not published: no manifest of ours is visible; the message says why."""


class ConflictError(PublishError):
    """Something else is published, or is being published, under this URL."""


class Action(enum.Enum):
    """What publishing does with a file."""

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
    """What happened.

    Attributes:
      url: of the directory in the store.
      files: in the order of their paths, the manifest last.
      strays: files in the directory that the manifest does not name; they stay where they are.
      lock: what a lock file needs.
      model: whose artifacts they are.
    """

    url: str
    files: tuple[PublishedFile, ...]
    strays: tuple[str, ...]
    model: str
    lock: LockedModel


@attrs.frozen(kw_only=True)
class PublishOptions(TransferOptions):
    """How to publish.

    Attributes:
      dry_run: only say what would be done.
      remove_local: remove the files here, after the store has confirmed the digest of each.
    """

    parallel: int = attrs.field(default=4, validator=attrs.validators.ge(1))
    read_timeout_s: float = attrs.field(default=60.0, validator=attrs.validators.gt(0))
    dry_run: bool = False
    remove_local: bool = False


def publish(directory: Path, url: str, options: PublishOptions | None = None) -> PublishReport:
    """Publishes the artifacts of a directory with a manifest under a URL.

    First a claim is written, which says whose manifest it will be: of two that publish different
    things under one URL, one stops there. Then the files go up in parallel; then the store
    confirms their digests; then the manifest makes them visible. What is already there with the
    same content is left as it is, so that a publication that was cut short is finished by the
    same command.

    Raises:
      MalformedError: the manifest cannot be read.
      ConflictError: something else is there.
      PublishError: a file is not as the manifest says, or cannot be written.
    """
    options = options or PublishOptions()
    manifest = manifests.read(directory)
    stores = Stores(options)
    store = stores.at(url)
    run_each = functools.partial(_run_each, stores, options)
    local = run_each(functools.partial(_checked, directory), {f.path: f for f in manifest.files})
    document = digested(directory / MANIFEST_FILE)
    model, lock = locked(store.url, document.path.read_bytes())
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


Item = TypeVar("Item")


def _run_each(
    stores: Stores,
    options: PublishOptions,
    task: Callable[[str, Item], T],
    items: Mapping[str, Item],
) -> dict[str, T]:
    """Does something with each item in parallel; a conflict counts more than other errors."""
    tasks = {name: functools.partial(task, name, item) for name, item in items.items()}
    results, errors = run_all(tasks, parallel=options.parallel, deadline=stores.deadline)
    for error in errors.values():
        if isinstance(error, ConflictError):
            raise error
    if errors:
        name, error = next(iter(errors.items()))
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        # The answer to the last request may be all that got lost.
        state = "it may be visible" if name == MANIFEST_FILE else "nothing is visible yet"
        raise PublishError(f"{name}: {error}{more}; {state}; run the same command again") from error
    return results


def _checked(directory: Path, name: str, file: manifests.ArtifactFile) -> LocalFile:
    """Returns a file of a directory that is what the manifest says."""
    path = directory / name
    if not path.is_file() or path.is_symlink():
        raise PublishError(f"{path} is in the manifest, but is not a file")
    found = digested(path)
    if (found.size_bytes, found.sha256) != (file.size_bytes, file.sha256):
        raise PublishError(f"{path} does not match the manifest; generate it again")
    return found


def _claim(store: Store, name: str, document: LocalFile) -> None:
    """Says which manifest will be here, unless another one has been announced."""
    with tempfile.TemporaryDirectory(prefix="cbs-publish-") as directory:
        path = Path(directory) / name
        path.write_text(json.dumps({"manifest_sha256": document.sha256}) + "\n")
        try:
            _write_once(store, name, digested(path), lambda _: None)
        except ConflictError as error:
            raise ConflictError(
                f"{store.url}: another publication was made or started here; publish under "
                "another version, or finish the other publication"
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
        # Another process was first, or an earlier run, or an attempt whose answer got lost.
        return _present(store, name, file)
    store.check(name, file)
    return Action.UPLOADED


def _present(store: Store, name: str, file: LocalFile) -> Action:
    try:
        store.check(name, file)
    except DamagedError as error:
        raise ConflictError(
            f"{store.url_of(name)} is already published with other content ({error}); "
            "artifacts are written once, so publish under another version"
        ) from error
    return Action.PRESENT


def _remove(directory: Path, files: Mapping[str, LocalFile]) -> None:
    """Removes published files, and directories that are empty then."""
    for file in files.values():
        file.path.unlink()
    below = [path for path in directory.rglob("*") if path.is_dir()]
    for path in (*sorted(below, reverse=True), directory):
        if not any(path.iterdir()):
            path.rmdir()
