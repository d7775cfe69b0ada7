"""One object from a store into the cache: continued, retried, checked, then named."""

import errno
import hashlib
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import attrs
from filelock import Timeout
from urllib3.exceptions import MaxRetryError
from urllib3.util import Retry

from openxla.benchmark.artifacts.cache import Cache
from openxla.benchmark.artifacts.manifest import ArtifactFile
from openxla.benchmark.artifacts.progress import Meter, human_bytes
from openxla.benchmark.artifacts.stores import (
    DamagedError,
    Deadline,
    NoSpaceError,
    Store,
    StoreError,
    TransferOptions,
    TransientError,
)

# Threads that wait must not draw from a generator that others seed.
_JITTER = random.Random()  # noqa: S311

_CHUNK_BYTES = 1 << 18
_MOST_DAMAGED = 3


@attrs.frozen(kw_only=True)
class FetchOptions(TransferOptions):
    """How to fetch.

    Attributes:
      artifact_types: only files of these types; None means all.
      attempts: in a row that bring nothing, before an object is given up.
      backoff_s: before the third attempt, doubled each time, with as much jitter; the second comes
        within it. A server that says when to come back is asked then.
      max_bytes: refuse to transfer more; None is bounded by the disk alone.
    """

    artifact_types: frozenset[str] | None = None
    attempts: int = attrs.field(default=5, validator=attrs.validators.ge(1))
    backoff_s: float = attrs.field(default=0.5, validator=attrs.validators.ge(0))
    max_bytes: int | None = None

    def takes(self, file: ArtifactFile) -> bool:
        """Returns whether a file is of a type that is asked for."""
        return self.artifact_types is None or file.artifact_type in self.artifact_types


@attrs.frozen(kw_only=True)
class Wanted:
    """An object and what it has to be.

    Attributes:
      store: where it is.
      name: of it there.
      sha256: of its content; None takes what is there now.
      size_bytes: of its content; of unknown content, the most that is taken.
    """

    store: Store
    name: str
    sha256: str | None
    size_bytes: int

    @property
    def url(self) -> str:
        """What messages call it."""
        return self.store.url_of(self.name)


@attrs.frozen
class Transfer:
    """How far several downloads are, and how long they may take together."""

    options: FetchOptions
    deadline: Deadline
    meter: Meter

    def retry(self) -> Retry:
        """Returns a fresh budget of attempts."""
        return Retry(
            total=self.options.attempts - 1,
            backoff_factor=self.options.backoff_s / 2,
            backoff_max=30.0,
        )

    def pause(self, retry: Retry, error: TransientError, url: str) -> Retry:
        """Waits before the next attempt, as long as the server asks; returns what is left.

        Raises:
          StoreError: no attempt is left.
          DeadlineError: there is no time to wait.
        """
        try:
            left = retry.increment(method="GET", url=url, error=error)
        except MaxRetryError:
            raise StoreError(
                f"{error}; gave up after {self.options.attempts} attempts. The received part is "
                "kept; run the same command again later"
            ) from error
        wait_s = error.retry_after_s
        if wait_s is None:
            # Many that lost the same server at once must not come back at once.
            wait_s = left.get_backoff_time() + _JITTER.uniform(0.0, self.options.backoff_s)
        self.deadline.check(url, wait_s=wait_s)
        time.sleep(wait_s)
        return left


def download(wanted: Wanted, cache: Cache, transfer: Transfer) -> str:
    """Brings an object into the cache unless it is there with the right digest.

    Of several processes one fetches, the others wait for it.

    Returns:
      the sha256 of the object.

    Raises:
      StoreError: it cannot be had; what has arrived is kept unless it is damaged.
    """
    # Who fetches the same unknown content gathers it in the same file.
    key = wanted.sha256 or hashlib.sha256(wanted.url.encode()).hexdigest()
    notify, remaining_s = transfer.options.notify, transfer.deadline.remaining_s()
    try:
        with cache.lock(key).acquire(timeout=remaining_s, poll_interval=0.02):
            notify("locked", wanted.name)
            if wanted.sha256 and cache.holds(key, wanted.size_bytes):
                transfer.meter.present(wanted.size_bytes)
            else:
                path = cache.partial_path(key)
                with _disk_errors(path, wanted.url):
                    path.parent.mkdir(parents=True, exist_ok=True)
                    with path.open("a+b") as file:
                        key = _Piece(file, wanted, transfer).complete()
                    notify("checked", wanted.name)
                    cache.keep(path, key)
                    notify("stored", wanted.name)
    except Timeout as error:
        raise transfer.deadline.error(f"{wanted.url}, which another process is fetching") from error
    transfer.meter.finished_file()
    return key


class _Piece:
    """The part of an object that has arrived, with the state of its digest."""

    def __init__(self, file: BinaryIO, wanted: Wanted, transfer: Transfer) -> None:
        self._file, self._wanted, self._transfer = file, wanted, transfer
        self._digest = hashlib.sha256()
        self._size = 0

    def complete(self) -> str:
        """Receives what is missing; returns the digest.

        Raises:
          DamagedError: it is another content than it should be, each time that it is read.
          StoreError: it cannot be had.
        """
        wanted, transfer = self._wanted, self._transfer
        retry, damaged = transfer.retry(), 0
        if wanted.sha256 is not None:
            self._resume()
        while True:
            if wanted.sha256 is None:
                # The rest of another version would not be noticed.
                self._restart()
            before = self._size
            try:
                if wanted.sha256 is None or self._size < wanted.size_bytes:
                    self._receive()
                transfer.options.notify("received", wanted.name)
                self._file.flush()
                found = self._digest.hexdigest()
                if wanted.sha256 in (None, found):
                    return found
                raise self._damaged(f"received data with sha256 {found}")
            except TransientError as error:
                # A link that breaks now and then, but gets further, gets there.
                moves = wanted.sha256 is not None and self._size > before
                retry = transfer.pause(transfer.retry() if moves else retry, error, wanted.url)
            except DamagedError as error:
                self._restart()
                damaged += 1
                if damaged == _MOST_DAMAGED:
                    raise DamagedError(
                        f"{error}; read {damaged} times. It was published incorrectly, or a proxy "
                        "changes it: report it, or lock another version"
                    ) from error

    def _resume(self) -> None:
        """Takes over what an earlier run has left."""
        self._file.seek(0)
        while chunk := self._file.read(_CHUNK_BYTES):
            self._digest.update(chunk)
            self._size += len(chunk)
        if self._size > self._wanted.size_bytes:
            self._restart()
        self._transfer.meter.present(self._size)

    def _receive(self) -> None:
        """Appends what one answer brings.

        Raises:
          TransientError: it ended too early.
          DamagedError: it is, or says that it is, of another size than it should be.
        """
        wanted, transfer = self._wanted, self._transfer
        with wanted.store.open(wanted.name, offset=self._size) as body:
            due = body.total_bytes
            if wanted.sha256 is not None:
                if due not in (None, wanted.size_bytes):
                    raise self._damaged(f"the server announced {due} bytes")
                due = wanted.size_bytes
            if body.offset != self._size:
                transfer.meter.moved(-self._size)
                self._restart()
            while chunk := body.read(_CHUNK_BYTES):
                self._file.write(chunk)
                self._digest.update(chunk)
                self._size += len(chunk)
                transfer.meter.moved(len(chunk))
                transfer.options.notify("chunk", wanted.name)
                if self._size > wanted.size_bytes:
                    if wanted.sha256 is not None:
                        raise self._damaged("the server sent more bytes")
                    self._restart()
                    raise NoSpaceError(
                        f"{wanted.url} is larger than {human_bytes(wanted.size_bytes)}; not read"
                    )
                transfer.deadline.check(wanted.url)
        if due not in (None, self._size):
            raise TransientError(
                f"{wanted.url}: the connection ended after {self._size} of {due} bytes"
            )

    def _restart(self) -> None:
        self._file.truncate(0)
        self._digest = hashlib.sha256()
        self._size = 0

    def _damaged(self, found: str) -> DamagedError:
        self._transfer.meter.moved(-self._size)
        wanted = self._wanted
        return DamagedError(
            f"{wanted.url}: {found}, expected {wanted.size_bytes} bytes with sha256 {wanted.sha256}"
        )


@contextmanager
def _disk_errors(path: Path, url: str) -> Iterator[None]:
    """Says what a full disk was to hold; leaves it no fuller than it was, and nothing damaged."""
    try:
        yield
    except DamagedError:
        path.unlink()
        raise
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise StoreError(f"{url}: {path} cannot be written: {error}") from error
        there = path.stat().st_size if path.exists() else 0
        path.unlink(missing_ok=True)
        raise NoSpaceError(
            f"{url}: the disk of {path.parent} is full ({error.strerror}) after "
            f"{human_bytes(there)}; free some space, or put the artifact root elsewhere"
        ) from error
