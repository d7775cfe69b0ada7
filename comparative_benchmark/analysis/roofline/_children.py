"""Processes that measure for `cbs doctor --ceilings`, each with a limit of its own and of all."""

import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

_TIMEOUT_S = 120.0
# A process that has less than this would end before its library is imported.
_LEAST_S = 4.0
NO_TIME_LEFT = "no time left"
_PACKAGE = "comparative_benchmark.analysis.roofline"


@attrs.frozen(kw_only=True)
class Answer:
    """What a process printed last, and why it did not end well.

    Attributes:
      values: its last line of JSON; None where it printed none.
      problem: empty where it ended well. Both, where it had measured before it failed.
    """

    values: Mapping[str, Any] | None = None
    problem: str = ""


@attrs.frozen
class Budget:
    """Time that all processes together may take.

    Attributes:
      ends_s: on the clock of `time.monotonic`, which all processes of a system share; None for no
        limit but that of each process.
    """

    ends_s: float | None = None

    @classmethod
    def of(cls, seconds: float | None) -> "Budget":
        """Returns a budget that starts now."""
        return cls(None if seconds is None else time.monotonic() + seconds)

    def timeout_s(self) -> float:
        """Returns how long the next process may take; 0 where it is not worth starting."""
        left = _TIMEOUT_S if self.ends_s is None else self.ends_s - time.monotonic()
        return min(left, _TIMEOUT_S) if left >= _LEAST_S else 0.0


def ask(module: str, arguments: Sequence[str], budget: Budget) -> Answer:
    """Returns what a process of a module of this package answers.

    Args:
      module: it prints lines of JSON, each of which replaces the one before.
      arguments: of the module.
      budget: the process is not started when it is spent, and killed when it ends.
    """
    timeout_s = budget.timeout_s()
    if not timeout_s:
        return Answer(problem=NO_TIME_LEFT)
    command = [sys.executable, "-P", "-m", f"{_PACKAGE}.{module}", *arguments]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired as error:
        # It gives bytes even where text was asked for.
        printed = error.stdout.decode(errors="replace") if isinstance(error.stdout, bytes) else ""
        reason = f"no answer within {timeout_s:.0f} s"
        if timeout_s < _TIMEOUT_S:
            reason = f"{NO_TIME_LEFT} ({reason})"
        return Answer(values=_last(printed), problem=reason)
    values, lines = _last(done.stdout), done.stderr.strip().splitlines()
    if done.returncode == 0 and values is not None:
        return Answer(values=values)
    reason = lines[-1].strip() if lines else f"exit code {done.returncode}, without output"
    return Answer(values=values, problem=reason)


def _last(printed: str) -> Mapping[str, Any] | None:
    """Returns the last whole line of JSON; libraries may print lines of their own."""
    for line in reversed(printed.splitlines()):
        try:
            found = json.loads(line)
        except ValueError:
            continue
        if isinstance(found, dict):
            return found
    return None
