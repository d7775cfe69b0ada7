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
from openxla.benchmark.artifacts.download import Notify
from openxla.benchmark.artifacts.lock_file import LockedModel, locked
from openxla.benchmark.artifacts.manifest import CLAIM_FILE, MANIFEST_FILE
from openxla.benchmark.artifacts.parallel import run_all
from openxla.benchmark.artifacts.progress import Meter, OnProgress
from openxla.benchmark.artifacts.stores import (
    AlreadyExistsError,
    DamagedError,
    Deadline,
    LocalFile,
    NotFoundError,
    Store,
    StoreError,
    StoreOptions,
    Stores,
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


def _nothing(step: str, name: str) -> None:
    """Tells nobody."""


@attrs.frozen(kw_only=True)
class PublishOptions:
    """How to publish.

    Attributes:
      dry_run: only say what would be done.
      remove_local: remove the files here, after the store has confirmed the digest of each.
      parallel: files at once.
      deadline_s: for everything together.
      connect_timeout_s: for one connection.
      read_timeout_s: for one answer.
      anonymous: use no credentials.
      on_progress: told a few times a second.
      notify: told each step of each file.
    """

    dry_run: bool = False
    remove_local: bool = False
    parallel: int = attrs.field(default=4, validator=attrs.validators.ge(1))
    deadline_s: float = attrs.field(default=3600.0, validator=attrs.validators.gt(0))
    connect_timeout_s: float = attrs.field(default=10.0, validator=attrs.validators.gt(0))
    read_timeout_s: float = attrs.field(default=60.0, validator=attrs.validators.gt(0))
    anonymous: bool = False
    on_progress: OnProgress | None = None
    notify: Notify = _nothing


def publish(directory: Path, url: str, options: PublishOptions | None = None) -> PublishReport:
    """Publishes the artifacts of a directory with a manifest under a URL.

    First a claim is written, which says whose manifest it will be: of two that publish different
    things under one URL, one stops there. Then the files go up in parallel; then the store
    confirms their digests; then the manifest makes them visible. What is already there with the
    same content is left as it is, so that a publication that was cut short is finished by the
    same command.

    Raises:
      MalformedError: the manifest can not be read.
      ConflictError: something else is there.
      PublishError: a file is not as the manifest says, or can not be written.
    """
    options = options or PublishOptions()
    deadline = Deadline(options.deadline_s)
    manifest = manifests.read(directory)
    sizes = {file.path: file.size_bytes for file in manifest.files}
    stores = Stores(
        StoreOptions(
            deadline=deadline,
            connect_timeout_s=options.connect_timeout_s,
            read_timeout_s=options.read_timeout_s,
            anonymous=options.anonymous,
        )
    )
    store = stores.at(url)
    local = _run(
        {file.path: functools.partial(_checked, directory, file) for file in manifest.files},
        options,
        deadline,
    )
    document = _digested(directory / MANIFEST_FILE)
    model, lock = locked(store.url, (directory / MANIFEST_FILE).read_bytes())
    if document.sha256 != lock.manifest_sha256:
        raise PublishError(f"{directory / MANIFEST_FILE} changed while it was being read")
    meter = Meter(
        total_bytes=sum(sizes.values()) + document.size_bytes,
        total_files=len(sizes) + 1,
        on_progress=options.on_progress,
    )
    up = _Upload(store, options, meter)
    if options.dry_run:
        actions = {name: up.plan(name, local[name]) for name in sorted(local)}
        actions[MANIFEST_FILE] = up.plan(MANIFEST_FILE, document)
    else:
        up.claim(document)
        actions = _run(
            {name: functools.partial(up.put, name, local[name]) for name in sorted(local)},
            options,
            deadline,
        )
        options.notify("files", model)
        actions[MANIFEST_FILE] = up.put(MANIFEST_FILE, document)
        options.notify("manifest", model)
    strays = _strays(directory, sizes)
    if options.remove_local and not options.dry_run:
        _remove(directory, [*local.values(), document])
    all_sizes = {**sizes, MANIFEST_FILE: document.size_bytes}
    return PublishReport(
        url=store.url,
        files=tuple(
            PublishedFile(url=store.url_of(name), size_bytes=all_sizes[name], action=actions[name])
            for name in (*sorted(local), MANIFEST_FILE)
        ),
        strays=strays,
        model=model,
        lock=lock,
    )


class _Upload:
    """Writes files to a store, each once."""

    def __init__(self, store: Store, options: PublishOptions, meter: Meter) -> None:
        self._store, self._options, self._meter = store, options, meter

    def claim(self, document: LocalFile) -> None:
        """Says which manifest will be here, unless another one has been announced."""
        text = json.dumps({"manifest_sha256": document.sha256}).encode() + b"\n"
        with tempfile.TemporaryDirectory(prefix="cbs-publish-") as directory:
            path = Path(directory) / CLAIM_FILE
            path.write_bytes(text)
            try:
                self._put(CLAIM_FILE, _digested(path), lambda _: None)
            except ConflictError as error:
                raise ConflictError(
                    f"{self._store.url}: another publication was made or begun here; publish "
                    "this one under another version, or finish that one"
                ) from error
        self._options.notify("claimed", CLAIM_FILE)

    def put(self, name: str, file: LocalFile) -> Action:
        """Writes a file and has the store confirm its digest."""
        self._options.notify("upload", name)
        action = self._put(name, file, self._meter.moved)
        self._options.notify("confirmed", name)
        self._meter.finished_file()
        return action

    def plan(self, name: str, file: LocalFile) -> Action:
        """Returns what `put` would do.

        Raises:
          ConflictError: something else is there.
        """
        try:
            self._store.stat(name)
        except NotFoundError:
            return Action.WOULD_UPLOAD
        self._check(name, file)
        return Action.PRESENT

    def _put(self, name: str, file: LocalFile, advance: Callable[[int], None]) -> Action:
        try:
            self._store.put(name, file, advance)
        except AlreadyExistsError:
            # Another process was first, or an earlier run, or an attempt whose answer got lost.
            self._check(name, file)
            return Action.PRESENT
        self._store.check(name, file)
        return Action.UPLOADED

    def _check(self, name: str, file: LocalFile) -> None:
        try:
            self._store.check(name, file)
        except DamagedError as error:
            raise ConflictError(
                f"{self._store.url_of(name)} is published already, with other content ({error}); "
                "artifacts are written once: publish under another version"
            ) from error


def _run(
    tasks: Mapping[str, Callable[[], T]], options: PublishOptions, deadline: Deadline
) -> dict[str, T]:
    outcomes = run_all(tasks, parallel=options.parallel, deadline=deadline)
    for error in outcomes.errors.values():
        if isinstance(error, ConflictError):
            raise error
    if outcomes.errors:
        name, error = next(iter(outcomes.errors.items()))
        more = f" (and {len(outcomes.errors) - 1} more)" if len(outcomes.errors) > 1 else ""
        raise PublishError(
            f"{name}: {error}{more}; nothing is visible yet: run the same again"
        ) from error
    return outcomes.results


def _checked(directory: Path, file: manifests.ArtifactFile) -> LocalFile:
    path = directory / file.path
    if not path.is_file() or path.is_symlink():
        raise PublishError(f"{path}, which the manifest names, is no file")
    found = _digested(path)
    if (found.size_bytes, found.sha256) != (file.size_bytes, file.sha256):
        raise PublishError(f"{path} is not the file that the manifest describes; generate it again")
    return found


def _digested(path: Path) -> LocalFile:
    """Returns a file with the digests that stores confirm, computed in one pass."""
    sha256, md5, size = hashlib.sha256(), hashlib.md5(usedforsecurity=False), 0
    with path.open("rb") as file:
        while piece := file.read(_CHUNK_BYTES):
            sha256.update(piece)
            md5.update(piece)
            size += len(piece)
    return LocalFile(path=path, size_bytes=size, sha256=sha256.hexdigest(), md5=md5.digest())


def _strays(directory: Path, named: Mapping[str, object]) -> tuple[str, ...]:
    found = (path for path in directory.rglob("*") if not path.is_dir())
    names = sorted(path.relative_to(directory).as_posix() for path in found)
    return tuple(name for name in names if name not in named and name != MANIFEST_FILE)


def _remove(directory: Path, files: list[LocalFile]) -> None:
    """Removes published files, and directories that are empty then."""
    for file in files:
        file.path.unlink()
    below = [path for path in directory.rglob("*") if path.is_dir()]
    for path in (*sorted(below, reverse=True), directory):
        if not any(path.iterdir()):
            path.rmdir()
