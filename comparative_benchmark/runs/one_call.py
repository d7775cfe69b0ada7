"""Calls of functions in workers."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar

from comparative_benchmark.backends.api import get_backend
from comparative_benchmark.results.record import Status
from comparative_benchmark.runs import messages
from comparative_benchmark.runs.messages import Called, Report
from comparative_benchmark.runs.session import SessionEnded
from comparative_benchmark.runs.settings import RunSettings
from openxla.benchmark.temporary import temporary_folder

A = TypeVar("A", bound=Report)
T = TypeVar("T")


class Callee(Protocol):
    """A session, as far as commands need one."""

    def call(self, kind: type[A], **arguments: Any) -> A:
        """Sends the command of a class of answers, and returns the worker's answer."""


def call_function(session: Callee, function: str, arguments: Mapping[str, Any], kind: type[T]) -> T:
    """Returns what a function returns in a worker, as an object of a class.

    Args:
      session: of the worker.
      function: as `module:function`.
      arguments: of the function, by name; JSON values.
      kind: of the returned JSON value.

    Raises:
      SessionEnded: the function failed, or returned something else.
    """
    answer = session.call(Called, function=function, arguments=dict(arguments))
    try:
        value: T = messages.converted(answer.value, kind)
    except messages.MessageError as error:
        reason = f"{function} returned a malformed value: {error}"
        raise SessionEnded(Status.FAILED, "call", reason) from error
    return value


def call_once(
    settings: RunSettings, function: str, arguments: Mapping[str, Any], kind: type[T]
) -> T:
    """Returns what a function returns in a new worker of PyTorch.

    Args:
      settings: of the worker.
      function: as `module:function`.
      arguments: of the function, by name; JSON values.
      kind: of the returned JSON value.

    Raises:
      SessionEnded: see `call_function`.
    """
    with temporary_folder("call") as scratch:
        place = Path(scratch)
        session = settings.open_session(
            get_backend("pt_inductor"),
            None,
            work_dir=place,
            cache_dir=place / "cache",
            log_file=place / "log",
        )
        with session:
            return call_function(session, function, arguments, kind)
