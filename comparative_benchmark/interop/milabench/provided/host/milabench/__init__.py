"""milabench as benchfiles import it. It builds commands; the suite runs them."""

import json
import os
from typing import Any

__version__ = "0.1.0"


class CommandFailedError(RuntimeError):
    """A command that a benchfile relies on failed.

    Attributes:
      code: its exit code if the suite ran it; None if the benchfile's process ran it.
    """

    def __init__(self, message: str, code: "int | None" = None) -> None:
        super().__init__(message)
        self.code = code


class Channel:
    """JSON lines to the suite over one pipe, and its answers over another."""

    def __init__(self, questions: int, answers: int) -> None:
        self._questions = os.fdopen(questions, "w", encoding="utf-8")
        self._answers = os.fdopen(answers, encoding="utf-8")

    def say(self, kind: str, **fields: Any) -> None:
        """Sends the suite a message that needs no answer."""
        self._questions.write(json.dumps({"type": kind, **fields}, default=str) + "\n")
        self._questions.flush()

    def execute(self, commands: "list[dict[str, Any]]") -> "list[int]":
        """Has the suite run commands concurrently; returns their exit codes."""
        self.say("execute", commands=commands)
        line = self._answers.readline()
        if not line:
            raise SystemExit(1)  # the suite is gone
        codes: list[int] = json.loads(line)["codes"]
        return codes


# Set by the process that loads the benchfile.
current: "Channel | None" = None


def channel() -> Channel:
    """Returns the way to the suite."""
    assert current is not None, "benchfiles run only under `cbs bench`"
    return current
