"""One object from a store into the cache: continued, retried, checked, then named."""

import errno
import hashlib
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import attrs
from filelock import Timeout
from urllib3.exceptions import MaxRetryError
from urllib3.util import Retry

from openxla.benchmark.artifacts.cache import Cache
from openxla.benchmark.artifacts.progress import Meter, human_bytes
from openxla.benchmark.artifacts.stores.errors import (
    DamagedError,
    NoSpaceError,
    StoreError,
    TransientError,
)
from openxla.benchmark.artifacts.stores.interface import Deadline, Store

# Of its own: threads that wait must not draw from a generator that others seed.
_JITTER = random.Random()  # noqa: S311

Notify = Callable[[str, str], None]
"""Told each step with the object's name: locked, chunk, received, checked, stored ..."""

_CHUNK_BYTES = 1 << 18
_MOST_DAMAGED = 3


@attrs.frozen(kw_only=True)
class Wanted:
    """An object and what it has to be."""

    store: Store
    name: str
    sha256: str
    size_bytes: int

    @property
    def url(self) -> str:
        """What messages call it."""
        return self.store.url_of(self.name)


@attrs.frozen(kw_only=True)
class Transfer:
    """How to fetch.

    Attributes:
      deadline: of all objects together.
      attempts: in a row without a single byte before an object is given up.
      backoff_s: before the third attempt; doubled for each further one; up to as much is added
        at random.
      meter: counts bytes.
      notify: told each step.
    """

    deadline: Deadline
    attempts: int
    backoff_s: float
    meter: Meter
    notify: Notify

    def retry(self) -> Retry:
        """Returns a fresh budget of attempts."""
        return Retry(
            total=self.attempts - 1,
            backoff_factor=self.backoff_s / 2,
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
                f"{error}; given up after {self.attempts} attempts. What has arrived is kept: run "
                "the same again later"
            ) from error
        # Many that lost the same server at once must not come back at once.
        jitter = _JITTER.uniform(0.0, self.backoff_s)
        asked = error.retry_after_s
        self.deadline.sleep(left.get_backoff_time() + jitter if asked is None else asked, url)
        return left


def download(wanted: Wanted, cache: Cache, transfer: Transfer) -> None:
    """Brings an object into the cache unless it is there; then, its digest was right.

    Of several processes one fetches, the others wait for it.

    Raises:
      StoreError: it can not be had; what has arrived is kept unless it is damaged.
    """
    try:
        with cache.lock(wanted.sha256).acquire(
            timeout=transfer.deadline.remaining_s(), poll_interval=0.02
        ):
            transfer.notify("locked", wanted.name)
            if cache.holds(wanted.sha256, wanted.size_bytes):
                transfer.meter.present(wanted.size_bytes)
                return
            _fetch(wanted, cache, transfer)
    except Timeout as error:
        raise transfer.deadline.error(f"{wanted.url}, which another process fetches") from error


def _fetch(wanted: Wanted, cache: Cache, transfer: Transfer) -> None:
    path = cache.partial_path(wanted.sha256)
    with space_errors(path, wanted.url):
        path.parent.mkdir(parents=True, exist_ok=True)
        for attempt in range(1, _MOST_DAMAGED + 1):
            try:
                _gather(wanted, path, transfer)
                break
            except DamagedError as error:
                path.unlink(missing_ok=True)
                if attempt == _MOST_DAMAGED:
                    raise DamagedError(
                        f"{error}; read {attempt} times. Either it was published wrongly, or what "
                        "lies between changes it: report it, or lock another version"
                    ) from error
        transfer.notify("checked", wanted.name)
        cache.keep(path, wanted.sha256)
        transfer.notify("stored", wanted.name)


def _gather(wanted: Wanted, path: Path, transfer: Transfer) -> None:
    """Leaves the whole content in a file whose digest has been found right."""
    with path.open("a+b") as file:
        piece = _Piece(file, wanted, transfer)
        piece.resume()
        retry = transfer.retry()
        while piece.size < wanted.size_bytes:
            before = piece.size
            try:
                piece.receive()
            except TransientError as error:
                # A link that breaks now and then, but moves, gets there.
                fresh = transfer.retry() if piece.size > before else retry
                retry = transfer.pause(fresh, error, wanted.url)
        transfer.notify("received", wanted.name)
        piece.check()


class _Piece:
    """The part of an object that has arrived, with the state of its digest."""

    def __init__(self, file: BinaryIO, wanted: Wanted, transfer: Transfer) -> None:
        self._file, self._wanted, self._transfer = file, wanted, transfer
        self._digest = hashlib.sha256()
        self.size = 0

    def resume(self) -> None:
        """Takes over what an earlier run has left."""
        self._file.seek(0)
        while chunk := self._file.read(_CHUNK_BYTES):
            self._digest.update(chunk)
            self.size += len(chunk)
        if self.size > self._wanted.size_bytes:
            self._restart()
        self._transfer.meter.present(self.size)

    def receive(self) -> None:
        """Appends what one answer brings.

        Raises:
          TransientError: it ended too early.
          DamagedError: it is, or says that it is, of another size than it should be.
        """
        wanted, transfer = self._wanted, self._transfer
        with wanted.store.open(wanted.name, offset=self.size) as body:
            if body.total_bytes not in (None, wanted.size_bytes):
                raise self._damaged(f"the server announces {body.total_bytes} bytes")
            if body.offset != self.size:
                transfer.meter.moved(-self.size)
                self._restart()
            while chunk := body.read(_CHUNK_BYTES):
                self._file.write(chunk)
                self._digest.update(chunk)
                self.size += len(chunk)
                transfer.meter.moved(len(chunk))
                transfer.notify("chunk", wanted.name)
                if self.size > wanted.size_bytes:
                    raise self._damaged("the server sends more")
                transfer.deadline.check(wanted.url)
        if self.size < wanted.size_bytes:
            raise TransientError(
                f"{wanted.url}: the connection ended after {self.size} of {wanted.size_bytes} bytes"
            )

    def check(self) -> None:
        """Raises DamagedError unless it is what was wanted."""
        self._file.flush()
        if (found := self._digest.hexdigest()) != self._wanted.sha256:
            raise self._damaged(f"what arrived has sha256 {found}")

    def _restart(self) -> None:
        self._file.truncate(0)
        self._digest = hashlib.sha256()
        self.size = 0

    def _damaged(self, found: str) -> DamagedError:
        self._transfer.meter.moved(-self.size)
        wanted = self._wanted
        return DamagedError(
            f"{wanted.url}: {found} where {wanted.size_bytes} bytes with sha256 {wanted.sha256} "
            "are due"
        )


@contextmanager
def space_errors(path: Path, url: str) -> Iterator[None]:
    """Says what a full disk was to hold, and leaves it no fuller than it was."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise StoreError(f"{url}: {path} can not be written: {error}") from error
        there = path.stat().st_size if path.exists() else 0
        path.unlink(missing_ok=True)
        raise NoSpaceError(
            f"{url}: the disk of {path.parent} is full ({error.strerror}) after "
            f"{human_bytes(there)}; free some space, or put the artifact root elsewhere"
        ) from error
