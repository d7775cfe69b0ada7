"""Engines: schedulers that execute batches; a small protocol, and a registry by entry points."""

import enum
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import attrs

from comparative_benchmark.errors import UsageError
from comparative_benchmark.fleet.features import Node
from openxla.benchmark.plugins import plugins
from openxla.benchmark.text import did_you_mean

GROUP = "comparative_benchmark.fleet_engines"


class EngineError(UsageError):
    """The scheduler does not answer; the command can be repeated, and loses nothing."""


class RefusedError(Exception):
    """The scheduler refuses a batch, and would refuse it again; the message is its reason."""


class FullError(Exception):
    """The scheduler accepts no more batches of this user now."""


class QueueState(enum.Enum):
    """State of a batch in the queue."""

    PENDING = "pending"
    RUNNING = "running"
    ENDED = "ended"
    TIMEOUT = "timeout"
    LOST = "lost"
    CANCELLED = "cancelled"


@attrs.frozen(kw_only=True)
class QueueEntry:
    """A batch in the queue.

    Attributes:
      state: its state.
      node: where it runs or ran; None if unknown.
      reason: the scheduler's reason, e.g. why it is pending.
      id: the scheduler's id, to show to people.
      ended_at: when it ended, in seconds since 1970; None if unknown.
    """

    state: QueueState
    node: str | None = None
    reason: str = ""
    id: str = ""
    ended_at: float | None = None


@attrs.frozen(kw_only=True)
class Submission:
    """A batch to submit.

    Attributes:
      name: unique name, by which the batch is found in the queue.
      file: the batch's file in the spool.
      environment: virtual environment or interpreter of the nodes; None for the submitter's.
      setup: shell command that makes the environment if it is missing; None if it exists.
      access: options of the scheduler, passed on unchanged.
      nodes: names of the nodes that it may run on.
      others: names of the other known nodes.
      time_limit_s: limit of the allocation.
      share: `node` or `gpu`.
      log: file for the output.
    """

    name: str
    file: Path
    environment: str | None
    setup: str | None
    access: tuple[str, ...]
    nodes: tuple[str, ...]
    others: tuple[str, ...]
    time_limit_s: int
    share: str
    log: Path


class Engine(Protocol):
    """A scheduler."""

    def nodes(self) -> list[Node]:
        """Returns all nodes that jobs can be sent to.

        Raises:
          EngineError: the scheduler does not answer.
        """
        ...

    def submit(self, submission: Submission) -> str:
        """Submits a batch and returns the scheduler's id.

        Raises:
          EngineError: the scheduler does not answer.
          RefusedError: the batch is wrong for this scheduler.
          FullError: the queue has no room.
        """
        ...

    def poll(self, prefix: str) -> dict[str, QueueEntry]:
        """Returns the batches in the queue whose names have a prefix, with one question.

        Raises:
          EngineError: the scheduler does not answer.
        """
        ...

    def cancel(self, names: Sequence[str]) -> None:
        """Cancels batches; names that are not in the queue, or have ended, are ignored.

        Raises:
          EngineError: the scheduler does not answer.
        """
        ...

    def room(self, queued: int) -> int | None:
        """Returns how many more batches can be queued; None for no limit.

        Args:
          queued: number of this fleet's batches in the queue.
        """
        ...

    def continue_later(self, command: Sequence[str], name: str) -> bool:
        """Starts a command when the queue may have room; returns False if the engine cannot."""
        ...

    def collect(self, folder: Path) -> list[str]:
        """Fetches finished files of the nodes into the spool, if they have no shared file system.

        Returns one line for each node that could not be reached.
        """
        ...


def open_engine(
    name: str, options: Mapping[str, Any], folder: Path, hosts: Sequence[str]
) -> Engine:
    """Returns an engine.

    Args:
      name: name of the engine's entry point.
      options: the `[options]` of FLEET.toml.
      folder: the fleet's folder in the spool.
      hosts: names of all hosts in FLEET.toml.

    Raises:
      UsageError: the engine does not exist, or an option is invalid.
    """
    engines = {plugin.name: plugin.value for plugin in plugins(GROUP, type)}
    if name not in engines:
        near = did_you_mean(name, engines) or f"; choices are {', '.join(engines)}"
        raise UsageError(f"unknown engine {name!r}{near}")
    engine: Engine = engines[name](options=options, folder=folder, hosts=tuple(hosts))
    return engine


def check_options(options: Mapping[str, Any], known: Sequence[str], engine: str) -> None:
    """Raises `UsageError` for an unknown option."""
    for name in options:
        if name not in known:
            near = did_you_mean(name, known) or f"; expected {', '.join(known)}"
            raise UsageError(f"[options] for engine {engine}: unknown key {name!r}{near}")
