"""What a fetch is asked for, how it goes about it, and what it returns."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs

from openxla.benchmark.artifacts.download import Notify, Transfer
from openxla.benchmark.artifacts.lock_file import LockedModel
from openxla.benchmark.artifacts.manifest import ArtifactFile, Manifest
from openxla.benchmark.artifacts.progress import Meter, OnProgress
from openxla.benchmark.artifacts.stores import Deadline, StoreError, StoreOptions

_MOST_LISTED = 5


class FetchError(StoreError):
    """Some artifacts can not be had; the others are in the cache.

    Attributes:
      errors: by the URL of the object.
      fetched: the models that are complete.
    """

    def __init__(
        self, errors: Mapping[str, Exception], fetched: Sequence["FetchedModel"] = ()
    ) -> None:
        self.errors, self.fetched = dict(errors), list(fetched)
        lines = [_line(name, error) for name, error in list(self.errors.items())[:_MOST_LISTED]]
        if len(self.errors) > _MOST_LISTED:
            lines.append(f"and {len(self.errors) - _MOST_LISTED} more")
        super().__init__("\n".join([f"{len(self.errors)} could not be fetched:", *lines]))


@attrs.frozen(kw_only=True)
class Source:
    """Where a model's artifacts are.

    Attributes:
      url: of the directory with the manifest.
      lock: what they have to be; None takes what is there now.
    """

    url: str
    lock: LockedModel | None = None

    @classmethod
    def locked(cls, lock: LockedModel) -> "Source":
        """Returns the source that a lock file names."""
        return cls(url=lock.url, lock=lock)


def _nothing(step: str, name: str) -> None:
    """Tells nobody."""


@attrs.frozen(kw_only=True)
class FetchOptions:
    """How to fetch.

    Attributes:
      artifact_types: only files of these types; None means all.
      parallel: files at once.
      deadline_s: for everything together; nothing waits beyond it.
      connect_timeout_s: for one connection.
      read_timeout_s: between two pieces of an answer.
      attempts: in a row that bring nothing, before an object is given up.
      backoff_s: before the third attempt, doubled each time, with jitter; the second comes within
        it. A server that says when to come back is asked then.
      max_bytes: refuse to transfer more; None is bounded by the disk alone.
      anonymous: use no credentials.
      on_progress: told a few times a second, from several threads but never two at once.
      notify: told each step of each file.
    """

    artifact_types: frozenset[str] | None = None
    parallel: int = attrs.field(default=8, validator=attrs.validators.ge(1))
    deadline_s: float = attrs.field(default=3600.0, validator=attrs.validators.gt(0))
    connect_timeout_s: float = attrs.field(default=10.0, validator=attrs.validators.gt(0))
    read_timeout_s: float = attrs.field(default=30.0, validator=attrs.validators.gt(0))
    attempts: int = attrs.field(default=5, validator=attrs.validators.ge(1))
    backoff_s: float = attrs.field(default=0.5, validator=attrs.validators.ge(0))
    max_bytes: int | None = None
    anonymous: bool = False
    on_progress: OnProgress | None = None
    notify: Notify = _nothing

    def store_options(self, deadline: Deadline) -> StoreOptions:
        """Returns what stores need to know of it."""
        return StoreOptions(
            deadline=deadline,
            connect_timeout_s=self.connect_timeout_s,
            read_timeout_s=self.read_timeout_s,
            anonymous=self.anonymous,
        )

    def transfer(self, deadline: Deadline, meter: Meter) -> Transfer:
        """Returns what downloads need to know of it."""
        return Transfer(
            deadline=deadline,
            attempts=self.attempts,
            backoff_s=self.backoff_s,
            meter=meter,
            notify=self.notify,
        )

    def takes(self, file: ArtifactFile) -> bool:
        """Returns whether a file is of a type that is asked for."""
        return self.artifact_types is None or file.artifact_type in self.artifact_types


@attrs.frozen(kw_only=True)
class FetchedModel:
    """A model's files, here.

    Attributes:
      directory: where they have the names of the manifest; read-only, shared with others.
      manifest: all that was published, fetched or not.
      manifest_sha256: names exactly which artifacts these are.
      files: those that were asked for, by their paths in the manifest.
    """

    directory: Path
    manifest: Manifest
    manifest_sha256: str
    files: Mapping[str, Path]


def _line(name: str, error: Exception) -> str:
    text = str(error)
    return f"  {text}" if name.partition(" (")[0] in text else f"  {name}: {text}"
