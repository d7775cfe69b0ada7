"""A session without a process, for debuggers: no deadlines, no isolation, same answers."""

import os
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self, TypeVar

from comparative_benchmark.results.record import Status
from comparative_benchmark.runs import messages
from comparative_benchmark.runs.messages import Failure, Report
from comparative_benchmark.runs.session import SessionEnded
from comparative_benchmark.worker.executor import Executor

A = TypeVar("A", bound=Report)


class InProcessSession:
    """Runs commands right here; a crash takes the program with it.

    To a `SessionPool` it is as good as new after each model.
    """

    usable, served = True, 0
    truth_not_isolated = "the run has no worker processes"

    def __init__(self, *, environment: Mapping[str, str]) -> None:
        # Folders in it are gone after the run.
        self._before = {name: os.environ.get(name) for name in environment}
        os.environ.update(environment)
        self._executor = Executor(announce=lambda _: None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        del self._executor
        self.end()

    def call(self, kind: type[A], **arguments: Any) -> A:
        """Runs the command that a class of answers belongs to, and returns the answer.

        Raises:
          SessionEnded: the command failed, or the answer is malformed.
        """
        command = messages.command_of(kind)
        plain = self._executor.handle({"command": command, "id": 0, "arguments": arguments})
        try:
            answer = messages.decode(plain)
            if isinstance(answer, Failure) and answer.id == 0:
                raise SessionEnded.by(answer)
            if not isinstance(answer, kind) or answer.id != 0:
                raise messages.MessageError(f"{type(answer).__name__}, not {kind.__name__}")
        except messages.MessageError as error:
            reason = f"the worker sent a malformed message: {error}"
            raise SessionEnded(Status.FAILED, command, reason) from error
        return answer

    def cpu_ms(self) -> float | None:
        """Returns the CPU time of this process, which is the worker."""
        return time.process_time_ns() / 1e6

    def renew(self) -> None:
        """There are no deadlines to renew."""

    def end(self) -> None:
        """Restores the environment."""
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        self._before = {}
