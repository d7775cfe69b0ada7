"""What every store can do: list, look up, read from an offset, write once."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

import attrs

from openxla.benchmark.artifacts.stores.errors import DeadlineError

Advance = Callable[[int], None]
"""Told the number of bytes each time that some have gone out."""


@attrs.frozen
class Deadline:
    """A moment by which everything has to be over; `seconds` is what the user gave."""

    seconds: float
    expires_at: float = attrs.field(
        default=attrs.Factory(lambda self: time.monotonic() + self.seconds, takes_self=True)
    )

    def remaining_s(self) -> float:
        """Returns the seconds left, at least 0."""
        return max(0.0, self.expires_at - time.monotonic())

    def check(self, what: str) -> None:
        """Raises DeadlineError, which names what was being done, once the time is over."""
        if time.monotonic() >= self.expires_at:
            raise self.error(what)

    def error(self, what: str) -> DeadlineError:
        """Returns the error of a deadline that was missed."""
        return DeadlineError(
            f"{what}: not done within {self.seconds:g} s; what has arrived is kept, so run the "
            "same again, or give it a longer deadline"
        )

    def sleep(self, seconds: float, what: str) -> None:
        """Sleeps; raises DeadlineError at once where there is no time for it.

        Raises:
          DeadlineError: the deadline would come first.
        """
        if seconds >= self.remaining_s():
            raise self.error(what)
        time.sleep(seconds)


@attrs.frozen(kw_only=True)
class StoreOptions:
    """How long a store may take, and as whom it asks.

    Attributes:
      deadline: of everything together.
      connect_timeout_s: of one connection.
      read_timeout_s: between two pieces of one answer.
      anonymous: never look for credentials.
    """

    deadline: Deadline = attrs.field(factory=lambda: Deadline(3600.0))
    connect_timeout_s: float = 10.0
    read_timeout_s: float = 30.0
    anonymous: bool = False

    def connect_s(self) -> float:
        """Returns how long connecting may take from now on; never 0, which means for ever."""
        return max(0.001, min(self.connect_timeout_s, self.deadline.remaining_s()))

    def read_s(self) -> float:
        """Returns how long a read may take from now on."""
        return max(0.001, min(self.read_timeout_s, self.deadline.remaining_s()))


@attrs.frozen(kw_only=True)
class ObjectInfo:
    """An object in a store; its name is a relative path with slashes."""

    name: str
    size_bytes: int


@attrs.frozen(kw_only=True)
class LocalFile:
    """A file to be written to a store, with the digests that the store has to confirm."""

    path: Path
    size_bytes: int
    sha256: str
    md5: bytes


@attrs.frozen(kw_only=True)
class Body:
    """An open object.

    Attributes:
      offset: where it begins; 0 where a store can not start in the middle.
      total_bytes: size of the whole object as announced; None where it is not.
      read: returns at most that many bytes, fewer if fewer are there, b"" at the end; raises
        TransientError when the connection breaks.
      close: gives the connection back, or drops it where something is left to read.
    """

    offset: int
    total_bytes: int | None
    read: Callable[[int], bytes]
    close: Callable[[], None]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class Store(ABC):
    """Objects under one URL. Methods may be called from several threads at once.

    Every method raises `StoreError` or one of its kinds; none retries.
    """

    url: str

    def url_of(self, name: str) -> str:
        """Returns what messages call an object."""
        return f"{self.url}/{name}"

    @abstractmethod
    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Yields the objects whose names begin with a prefix, in the order of their names."""

    @abstractmethod
    def stat(self, name: str) -> ObjectInfo:
        """Returns name and size of an object."""

    @abstractmethod
    def open(self, name: str, *, offset: int = 0) -> Body:
        """Returns the content from an offset on, or from the start where that can not be."""

    @abstractmethod
    def put(self, name: str, file: LocalFile, advance: Advance) -> None:
        """Writes an object that does not exist; it is visible as a whole or not at all.

        Raises:
          AlreadyExistsError: it does; it is left as it is.
        """

    @abstractmethod
    def check(self, name: str, file: LocalFile) -> None:
        """Compares an object with a file by the store's own digest of what it holds.

        Raises:
          DamagedError: they differ.
        """
