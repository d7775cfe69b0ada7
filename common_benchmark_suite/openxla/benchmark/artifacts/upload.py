"""Files into a store: each written once, each confirmed by the store's own digest."""

import enum
import hashlib
import json
import tempfile
from collections.abc import Callable
from pathlib import Path

import attrs

from openxla.benchmark.artifacts.download import Notify
from openxla.benchmark.artifacts.lock_file import LockedModel
from openxla.benchmark.artifacts.manifest import CLAIM_FILE
from openxla.benchmark.artifacts.progress import Meter, OnProgress
from openxla.benchmark.artifacts.stores import (
    AlreadyExistsError,
    DamagedError,
    LocalFile,
    NotFoundError,
    Store,
    StoreError,
)

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


class Upload:
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
                self._put(CLAIM_FILE, digested(path), lambda _: None)
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


def digested(path: Path) -> LocalFile:
    """Returns a file with the digests that stores confirm, computed in one pass."""
    sha256, md5, size = hashlib.sha256(), hashlib.md5(usedforsecurity=False), 0
    with path.open("rb") as file:
        while piece := file.read(_CHUNK_BYTES):
            sha256.update(piece)
            md5.update(piece)
            size += len(piece)
    return LocalFile(path=path, size_bytes=size, sha256=sha256.hexdigest(), md5=md5.digest())
