"""Stores for published artifacts: local directory, HTTPS (read-only), Google Cloud Storage.

Transfers between a store and this machine have time limits, and report their progress.
"""

import collections
import errno
import hashlib
import os
import shutil
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import attrs

from openxla.benchmark.files import UNFINISHED, new_file, sha256_of

_CHUNK_BYTES = 1 << 20
# Window for the rate: recent enough to show that a connection has become slow.
_WINDOW_S = 5.0
_INTERVAL_S = 0.2

Advance = Callable[[int], None]
"""Told the number of bytes each time that some have gone out."""

Notify = Callable[[str, str], None]
"""Told each step with the object's name: locked, chunk, received, checked, stored ..."""


class StoreError(RuntimeError):
    """An object cannot be read or written; the message has its name, the reason and the remedy."""


class NotFoundError(StoreError):
    """The object does not exist."""


class AccessDeniedError(StoreError):
    """The store denies access."""


class AlreadyExistsError(StoreError):
    """An object of this name exists; objects are written once."""


class DamagedError(StoreError):
    """The size or digest of the data read differs from the announced one."""


class UnreachableError(StoreError):
    """The server did not answer in any attempt."""


class DeadlineError(StoreError):
    """The user's time limit has passed."""


class NoSpaceError(StoreError):
    """The disk is full, or a limit on bytes is reached."""


class TransientError(StoreError):
    """A retry may succeed, after `retry_after_s` if the server gives a delay."""

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


@attrs.frozen
class Deadline:
    """A point in time by which everything must end; `seconds` is the user's limit."""

    seconds: float
    expires_at: float = attrs.field(
        default=attrs.Factory(lambda self: time.monotonic() + self.seconds, takes_self=True)
    )

    def remaining_s(self, most: float = float("inf")) -> float:
        """Returns the seconds left, at most `most`; never 0, which sockets take as no timeout."""
        return max(0.001, min(most, self.expires_at - time.monotonic()))

    def check(self, task: str, *, wait_s: float = 0.0) -> None:
        """Raises DeadlineError, naming the current step, if a wait would end too late."""
        if time.monotonic() + wait_s >= self.expires_at:
            raise self.error(task)

    def error(self, task: str) -> DeadlineError:
        """Returns the error for a missed deadline."""
        return DeadlineError(
            f"{task}: not finished within {self.seconds:g} s; the received part is kept: to "
            "continue, run the same command again, or set a longer deadline"
        )


@attrs.frozen(kw_only=True)
class Progress:
    """The state of a transfer.

    Attributes:
      done_bytes: bytes so far, including those that were present at the start.
      total_bytes: bytes in total.
      done_files: files so far.
      total_files: files in total.
      rate_bytes_per_s: rate over the last seconds, excluding data that was present.
      remaining_s: remaining time at that rate; None if nothing is moving.
    """

    done_bytes: int
    total_bytes: int
    done_files: int
    total_files: int
    rate_bytes_per_s: float
    remaining_s: float | None

    def __str__(self) -> str:
        left = "-" if self.remaining_s is None else f"{self.remaining_s:.0f} s"
        return (
            f"{self.done_files}/{self.total_files} files, "
            f"{human_bytes(self.done_bytes)} of {human_bytes(self.total_bytes)}, "
            f"{human_bytes(self.rate_bytes_per_s)}/s, {left} left"
        )


OnProgress = Callable[[Progress], None]


@attrs.frozen(kw_only=True)
class TransferOptions:
    """Time limits, credentials and listeners of transfers.

    Attributes:
      parallel: number of concurrent files.
      deadline_s: time limit for everything together.
      connect_timeout_s: time limit for one connection.
      read_timeout_s: time limit between two pieces of a response.
      anonymous: never look for credentials.
      on_progress: called a few times per second, from several threads but never concurrently.
      notify: called for each step of each file.
    """

    parallel: int = attrs.field(default=8, validator=attrs.validators.ge(1))
    deadline_s: float = attrs.field(default=3600.0, validator=attrs.validators.gt(0))
    connect_timeout_s: float = attrs.field(default=10.0, validator=attrs.validators.gt(0))
    read_timeout_s: float = attrs.field(default=30.0, validator=attrs.validators.gt(0))
    anonymous: bool = False
    on_progress: OnProgress | None = None
    notify: Notify = lambda *_: None


@attrs.frozen(kw_only=True)
class LocalFile:
    """A file to be written to a store, with the digests that the store must confirm."""

    path: Path
    size_bytes: int
    sha256: str
    md5: bytes


@attrs.frozen(kw_only=True)
class Body(AbstractContextManager["Body"]):
    """An open object.

    Attributes:
      offset: where the data begins; 0 if the store does not support offsets.
      total_bytes: announced size of the whole object; None if it was not announced.
      read: returns at most that many bytes, fewer if fewer are available, b"" at the end; raises
        TransientError if the connection breaks.
      close: returns the connection to the pool, or drops it if data is left to read.
    """

    offset: int
    total_bytes: int | None
    read: Callable[[int], bytes]
    close: Callable[[], None]

    def __exit__(self, *_: object) -> None:
        self.close()


class Store(ABC):
    """Objects under one URL. Methods may be called from several threads at once.

    Every method raises `StoreError` or a subclass, and does not retry.
    """

    url: str

    def url_of(self, name: str) -> str:
        """Returns the name of an object in messages."""
        return f"{self.url}/{name}"

    @abstractmethod
    def sizes(self, prefix: str = "") -> dict[str, int]:
        """Returns the objects whose names begin with a prefix, ordered by name.

        Names are relative paths with slashes.

        Returns:
          the size of each in bytes.
        """

    @abstractmethod
    def open(self, name: str, *, offset: int = 0) -> Body:
        """Returns the content from an offset, or from the start if the store lacks ranges."""

    @abstractmethod
    def put(self, name: str, file: LocalFile, advance: Advance) -> None:
        """Writes a new object; it becomes visible as a whole or not at all.

        Raises:
          AlreadyExistsError: the object exists; it is not changed.
        """

    @abstractmethod
    def check(self, name: str, file: LocalFile) -> None:
        """Compares an object with a file by the store's own digest of the stored data.

        Raises:
          DamagedError: they differ.
          NotFoundError: the object does not exist.
        """


class LocalStore(Store):
    """Objects are files below a directory. Partially written files are never listed."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory.expanduser().absolute()
        self.url = str(self.directory)

    def sizes(self, prefix: str = "") -> dict[str, int]:
        """Returns the files whose relative paths begin with a prefix."""
        sizes = {
            path.relative_to(self.directory).as_posix(): path.stat().st_size
            for path in self.directory.rglob("*")
            if path.is_file() and not path.name.startswith(UNFINISHED)
        }
        return {name: sizes[name] for name in sorted(sizes) if name.startswith(prefix)}

    def open(self, name: str, *, offset: int = 0) -> Body:
        """Opens a file at an offset."""
        path = self._path(name)
        with _translated(path):
            file = path.open("rb", buffering=0)
        file.seek(offset)

        def read(most: int) -> bytes:
            with _translated(path):
                return file.read(most)

        size = os.fstat(file.fileno()).st_size
        return Body(offset=offset, total_bytes=size, read=read, close=file.close)

    def put(self, name: str, file: LocalFile, advance: Advance) -> None:
        """Copies a file to a temporary name, syncs it, and renames it unless the name is taken."""
        path, digest = self._path(name), hashlib.sha256()
        with _translated(path):
            if path.exists():
                raise FileExistsError
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                with new_file(path, overwrite=False) as temporary:
                    with file.path.open("rb") as read, temporary.open("wb") as written:
                        while piece := read.read(_CHUNK_BYTES):
                            written.write(piece)
                            digest.update(piece)
                            advance(len(piece))
                    if digest.hexdigest() != file.sha256:
                        raise DamagedError(f"{file.path} changed while it was copied to {path}")
            except OSError as error:
                if error.errno not in (errno.EPERM, errno.ENOTSUP):
                    raise
                # Without hard links (exFAT, some network mounts), an empty file takes the name.
                with new_file(path) as temporary:
                    shutil.copyfile(file.path, temporary)
                    path.touch(exist_ok=False)

    def check(self, name: str, file: LocalFile) -> None:
        """Reads the file again."""
        path = self._path(name)
        with _translated(path):
            digest = sha256_of(path)
        if digest != file.sha256:
            raise DamagedError(f"{path} has sha256 {digest}, but {file.path} has {file.sha256}")

    def _path(self, name: str) -> Path:
        parts = name.split("/")
        if any(part in ("", ".", "..") for part in parts):
            raise StoreError(f"{name!r} is not a valid object name: it points outside {self.url}")
        return self.directory.joinpath(*parts)


class Stores:
    """Opens stores by URL; stores of one scheme share connections and credentials.

    `options.deadline_s` is measured from the creation of this object.
    """

    def __init__(self, options: TransferOptions | None = None) -> None:
        self.options = options or TransferOptions()
        self.deadline = Deadline(self.options.deadline_s)
        self._lock = threading.Lock()
        self._clients: dict[Any, Any] = {}

    def timeouts(self) -> tuple[float, float]:
        """Returns the current timeouts in seconds for connecting and for each read."""
        left = self.deadline.remaining_s
        return left(self.options.connect_timeout_s), left(self.options.read_timeout_s)

    def at(self, url: str) -> Store:
        """Returns the store at a URL: `https://`, `gs://`, `file://`, or the path of a directory.

        Raises:
          StoreError: no store supports the URL, or a required library is missing.
        """
        parts = urlsplit(url)
        if parts.username or parts.password:
            host = url.rpartition("@")[2]
            raise StoreError(
                f"a URL at {host} contains a user name or password, which would end up in logs "
                "and lock files; remove them"
            )
        if parts.scheme and (parts.query or parts.fragment):
            raise StoreError(f"{url}: a store's URL cannot have a query or fragment")
        # Imported late, so that commands without downloads do not load HTTP libraries.
        if parts.scheme in ("http", "https"):
            from openxla.benchmark.artifacts.remote_stores import HttpReader, HttpsStore

            return HttpsStore(url, self._client(HttpReader))
        if parts.scheme == "gs":
            from openxla.benchmark.artifacts.remote_stores import GcsClient, GcsStore

            if not parts.netloc:
                raise StoreError(f"{url} has no bucket; write gs://bucket/folder")
            return GcsStore(url, self._client(GcsClient))
        if parts.scheme and (parts.scheme != "file" or parts.netloc):
            raise StoreError(
                f"{url}: {parts.scheme}:// is not supported; use https://, gs://, file:// or the "
                "path of a directory"
            )
        return LocalStore(Path(unquote(parts.path) if parts.scheme else url))

    def _client(self, kind: Callable[["Stores"], Any]) -> Any:
        with self._lock:
            if kind not in self._clients:
                self._clients[kind] = kind(self)
            return self._clients[kind]


class Meter:
    """Counts bytes and files of several threads; calls a listener a few times per second."""

    def __init__(
        self, *, total_bytes: int, total_files: int, on_progress: OnProgress | None = None
    ) -> None:
        self._total_bytes, self._total_files = total_bytes, total_files
        self._on_progress = on_progress
        self._lock = threading.Lock()
        self._done_bytes = self._moved_bytes = self._done_files = 0
        now = time.monotonic()
        self._samples = collections.deque([(now, 0)])
        self._shown_at = now

    def moved(self, count: int) -> None:
        """Adds transferred bytes; a negative number subtracts bytes that proved bad."""
        with self._lock:
            self._done_bytes += count
            self._moved_bytes += max(0, count)
            self._show(force=False)

    def present(self, count: int) -> None:
        """Adds bytes that were present already."""
        with self._lock:
            self._done_bytes += count

    def finished_file(self) -> None:
        """Adds a file."""
        with self._lock:
            self._done_files += 1
            self._show(force=self._done_files == self._total_files)

    def _show(self, *, force: bool) -> None:
        if self._on_progress is None:
            return
        now = time.monotonic()
        if force or now - self._shown_at >= _INTERVAL_S:
            self._shown_at = now
            self._on_progress(self._progress(now))

    def _progress(self, now: float) -> Progress:
        self._samples.append((now, self._moved_bytes))
        while len(self._samples) > 2 and now - self._samples[1][0] >= _WINDOW_S:
            self._samples.popleft()
        then, moved = self._samples[0]
        rate = (self._moved_bytes - moved) / (now - then) if now > then else 0.0
        left = max(0, self._total_bytes - self._done_bytes)
        return Progress(
            done_bytes=self._done_bytes,
            total_bytes=self._total_bytes,
            done_files=self._done_files,
            total_files=self._total_files,
            rate_bytes_per_s=rate,
            remaining_s=0.0 if not left else left / rate if rate else None,
        )


def human_bytes(count: float) -> str:
    """Returns a human-readable size, e.g. `1.5 GiB`."""
    for unit in ("bytes", "KiB", "MiB", "GiB", "TiB"):
        if abs(count) < 1024 or unit == "TiB":
            break
        count /= 1024
    digits = ".0f" if unit == "bytes" or abs(count) >= 100 else ".3g"
    return f"{count:{digits}} {unit}"


@contextmanager
def _translated(path: Path) -> Iterator[None]:
    """Translates system errors into store errors that name the path."""
    try:
        yield
    except FileExistsError as error:
        raise AlreadyExistsError(f"{path} already exists; artifacts are written once") from error
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NotFoundError(f"{path}: no such file") from error
    except IsADirectoryError as error:
        raise NotFoundError(f"{path} is a directory, not a file") from error
    except PermissionError as error:
        raise AccessDeniedError(f"{path}: {error.strerror}; check its owner") from error
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise NoSpaceError(
                f"{path}: {error.strerror}; free some space and run again"
            ) from error
        raise StoreError(f"{path}: {error}") from error
