"""Transfers: resumed, retried and verified downloads, and several tasks at a time.

An object goes from a store into the cache. No thread is waited for beyond a deadline.
"""

import errno
import hashlib
import queue
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, TypeVar

import attrs
from filelock import Timeout
from urllib3.exceptions import MaxRetryError
from urllib3.util import Retry

from openxla.benchmark.artifacts.cache import Cache
from openxla.benchmark.artifacts.manifests import ArtifactFile
from openxla.benchmark.artifacts.stores import (
    DamagedError,
    Deadline,
    Meter,
    NoSpaceError,
    Store,
    StoreError,
    TransferOptions,
    TransientError,
    UnreachableError,
    human_bytes,
)

# Waiting threads must not draw from a generator that other code may seed.
_JITTER = random.Random()  # noqa: S311

_CHUNK_BYTES = 1 << 18
_MOST_DAMAGED = 3

T = TypeVar("T")

# Tasks check the deadline themselves and give better messages. This extra time is for tasks that
# hang where no timeout applies: name resolution, a dead network file system.
_GRACE_S = 1.0


@attrs.frozen(kw_only=True)
class FetchOptions(TransferOptions):
    """Download options.

    Attributes:
      artifact_types: types of files to fetch; None means all.
      attempts: consecutive attempts without progress after which an object is given up.
      backoff_s: wait before the third attempt, doubled each time, plus as much jitter; the second
        attempt follows within this time. A delay requested by the server takes precedence.
      max_bytes: limit on bytes to transfer; with None only the disk is a limit.
    """

    artifact_types: frozenset[str] | None = None
    attempts: int = attrs.field(default=5, validator=attrs.validators.ge(1))
    backoff_s: float = attrs.field(default=0.5, validator=attrs.validators.ge(0))
    max_bytes: int | None = None

    def takes(self, file: ArtifactFile) -> bool:
        """Returns whether a file has a requested type."""
        return self.artifact_types is None or file.artifact_type in self.artifact_types


@attrs.frozen(kw_only=True)
class Wanted:
    """An object to download and its expected content.

    Attributes:
      store: the store that holds it.
      name: its name in the store.
      sha256: expected digest; None accepts the current content.
      size_bytes: expected size; the maximum size if `sha256` is None.
    """

    store: Store
    name: str
    sha256: str | None
    size_bytes: int

    @property
    def url(self) -> str:
        """The object's URL in messages."""
        return self.store.url_of(self.name)


@attrs.frozen
class Transfer:
    """Progress of several downloads, and their common deadline."""

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
        """Waits before the next attempt; returns the remaining attempts.

        The server may request the delay.

        Raises:
          UnreachableError: no attempt is left.
          DeadlineError: the wait would end after the deadline.
        """
        try:
            left = retry.increment(method="GET", url=url, error=error)
        except MaxRetryError:
            raise UnreachableError(
                f"{error}; gave up after {self.options.attempts} attempts. The received part is "
                "kept; to continue, run the same command again later"
            ) from error
        wait_s = error.retry_after_s
        if wait_s is None:
            # Jitter, so that many clients do not retry at the same moment.
            wait_s = left.get_backoff_time() + _JITTER.uniform(0.0, self.options.backoff_s)
        self.deadline.check(url, wait_s=wait_s)
        time.sleep(wait_s)
        return left


def download(wanted: Wanted, cache: Cache, transfer: Transfer) -> str:
    """Downloads an object into the cache, unless it is present with the right digest.

    If several processes need it, one downloads and the others wait.

    Returns:
      the sha256 of the object.

    Raises:
      StoreError: the download failed; the received part is kept unless it is damaged.
    """
    # Downloads of the same unknown content share a file.
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
        raise transfer.deadline.error(f"{wanted.url} (another process is fetching it)") from error
    transfer.meter.finished_file()
    return key


class _Piece:
    """The received part of an object, and the state of its digest."""

    def __init__(self, file: BinaryIO, wanted: Wanted, transfer: Transfer) -> None:
        self._file, self._wanted, self._transfer = file, wanted, transfer
        self._digest = hashlib.sha256()
        self._size = 0

    def complete(self) -> str:
        """Receives the missing part; returns the digest.

        Raises:
          DamagedError: the content differs from the expected one in every attempt.
          StoreError: the download failed.
        """
        wanted, transfer = self._wanted, self._transfer
        retry, damaged = transfer.retry(), 0
        if wanted.sha256 is not None:
            self._resume()
        while True:
            if wanted.sha256 is None:
                # Content appended from another version would go unnoticed.
                self._restart()
            before = self._size
            try:
                if wanted.sha256 is None or self._size < wanted.size_bytes:
                    self._receive()
                transfer.options.notify("received", wanted.name)
                self._file.flush()
                digest = self._digest.hexdigest()
                if wanted.sha256 in (None, digest):
                    return digest
                raise self._damaged(f"received data with sha256 {digest}")
            except TransientError as error:
                # An unreliable connection that makes progress may retry without limit.
                moves = wanted.sha256 is not None and self._size > before
                retry = transfer.pause(transfer.retry() if moves else retry, error, wanted.url)
            except DamagedError as error:
                self._restart()
                damaged += 1
                if damaged == _MOST_DAMAGED:
                    raise DamagedError(
                        f"{error}; tried {damaged} times. The file was published incorrectly, or a "
                        "proxy modifies it: report this, or lock another version"
                    ) from error

    def _resume(self) -> None:
        """Takes over the part that an earlier run has received."""
        self._file.seek(0)
        while chunk := self._file.read(_CHUNK_BYTES):
            self._digest.update(chunk)
            self._size += len(chunk)
        if self._size > self._wanted.size_bytes:
            self._restart()
        self._transfer.meter.present(self._size)

    def _receive(self) -> None:
        """Appends the content of one response.

        Raises:
          TransientError: the response ended too early.
          DamagedError: its actual or announced size differs from the expected one.
        """
        wanted, transfer = self._wanted, self._transfer
        with wanted.store.open(wanted.name, offset=self._size) as body:
            total_bytes = body.total_bytes
            if wanted.sha256 is not None:
                if total_bytes not in (None, wanted.size_bytes):
                    raise self._damaged(f"the server announced {total_bytes} bytes")
                total_bytes = wanted.size_bytes
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
                        raise self._damaged("the server sent too many bytes")
                    self._restart()
                    raise NoSpaceError(
                        f"{wanted.url} is larger than {human_bytes(wanted.size_bytes)}; not read"
                    )
                transfer.deadline.check(wanted.url)
        if total_bytes not in (None, self._size):
            raise TransientError(
                f"{wanted.url}: the connection ended after {self._size} of {total_bytes} bytes"
            )

    def _restart(self) -> None:
        self._file.truncate(0)
        self._digest = hashlib.sha256()
        self._size = 0

    def _damaged(self, got: str) -> DamagedError:
        self._transfer.meter.moved(-self._size)
        wanted = self._wanted
        return DamagedError(
            f"{wanted.url}: {got}, expected {wanted.size_bytes} bytes with sha256 {wanted.sha256}"
        )


@contextmanager
def _disk_errors(path: Path, url: str) -> Iterator[None]:
    """Translates write errors; removes the received part if the disk is full or data is damaged."""
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
            f"{url}: the disk that contains {path.parent} is full ({error.strerror}) after "
            f"{human_bytes(there)}; free some space, or choose another artifact root"
        ) from error


def run_all(
    tasks: Mapping[str, Callable[[], T]], *, parallel: int, deadline: Deadline
) -> tuple[dict[str, T], dict[str, Exception]]:
    """Runs tasks in threads; a failed task does not stop the others.

    The interpreter waits for threads of the standard library's pools at exit, so a hanging task
    would keep the program alive. It does not wait for these threads.

    Returns:
      results and exceptions, by task name; a task still running shortly after the deadline has a
      DeadlineError.
    """
    waiting = iter(list(tasks.items()))  # `next` on it is atomic
    done: queue.SimpleQueue[tuple[str, T | None, BaseException | None]] = queue.SimpleQueue()

    def work() -> None:
        for name, task in waiting:
            try:
                deadline.check(name)
                done.put((name, task(), None))
            except BaseException as error:
                done.put((name, None, error))

    for _ in range(min(parallel, len(tasks))):
        threading.Thread(target=work, daemon=True).start()
    results: dict[str, T] = {}
    errors: dict[str, Exception] = {}
    for _ in tasks:
        try:
            name, result, error = done.get(timeout=deadline.remaining_s() + _GRACE_S)
        except queue.Empty:
            break
        if error is None:
            results[name] = result  # type: ignore[assignment]
        elif isinstance(error, Exception):
            errors[name] = error
        else:
            raise error
    late = {name: deadline.error(name) for name in tasks if name not in {**results, **errors}}
    return results, {**errors, **late}
