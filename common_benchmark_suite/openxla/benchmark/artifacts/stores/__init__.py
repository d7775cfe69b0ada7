"""Stores for published artifacts: local directory, HTTPS (read-only), Google Cloud Storage."""

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import attrs

from openxla.benchmark.artifacts.progress import OnProgress

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
            f"{task}: not done within {self.seconds:g} s; the received part is kept, so run the "
            "same command again, or set a longer deadline"
        )


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
        if parts.query or parts.fragment:
            raise StoreError(f"{url}: the URL of a store cannot have a query or fragment")
        # Imported late, so that commands without downloads do not load HTTP libraries.
        if parts.scheme in ("http", "https"):
            from openxla.benchmark.artifacts.stores.remote import HttpReader, HttpsStore

            return HttpsStore(url, self._client(HttpReader))
        if parts.scheme == "gs":
            from openxla.benchmark.artifacts.stores.remote import GcsClient, GcsStore

            if not parts.netloc:
                raise StoreError(f"{url} has no bucket; write gs://bucket/folder")
            return GcsStore(url, self._client(GcsClient))
        if parts.scheme and (parts.scheme != "file" or parts.netloc):
            raise StoreError(
                f"{url}: {parts.scheme}:// is not supported; use https://, gs://, file:// or the "
                "path of a directory"
            )
        from openxla.benchmark.artifacts.stores.local import LocalStore

        return LocalStore(Path(unquote(parts.path) if parts.scheme else url))

    def _client(self, kind: Callable[["Stores"], Any]) -> Any:
        with self._lock:
            if kind not in self._clients:
                self._clients[kind] = kind(self)
            return self._clients[kind]
