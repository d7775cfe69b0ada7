"""Child processes that measure for `cbs doctor --ceilings`, with individual and total limits."""

import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

_TIMEOUT_S = 120.0
# A process with less time would end before its library is imported.
_LEAST_S = 4.0
NO_TIME_LEFT = "no time left"
_PACKAGE = "comparative_benchmark.analysis.roofline"


@attrs.frozen(kw_only=True)
class Answer:
    """A process's last output, and its failure, if any.

    Attributes:
      values: its last line of JSON; None without one.
      problem: empty on success. Both are set if it had measured before it failed.
    """

    values: Mapping[str, Any] | None = None
    problem: str = ""


@attrs.frozen
class Budget:
    """Time that all processes together may take.

    Attributes:
      ends_s: on the clock of `time.monotonic`, which all processes of a system share; None if only
        each process has a limit.
    """

    ends_s: float | None = None

    @classmethod
    def of(cls, seconds: float | None) -> "Budget":
        """Returns a budget that starts now."""
        return cls(None if seconds is None else time.monotonic() + seconds)

    def timeout_s(self) -> float:
        """Returns the time limit of the next process; 0 if starting it is not worthwhile."""
        left = _TIMEOUT_S if self.ends_s is None else self.ends_s - time.monotonic()
        return min(left, _TIMEOUT_S) if left >= _LEAST_S else 0.0


def ask(module: str, arguments: Sequence[str], budget: Budget) -> Answer:
    """Runs a module of this package in a child process and returns its answer.

    Args:
      module: it prints lines of JSON, each of which replaces the one before.
      arguments: arguments of the module.
      budget: the process is not started if it is spent, and killed when it ends.
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
        # This is bytes even in text mode.
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
    """Returns the last whole line of JSON; libraries may print other lines."""
    for line in reversed(printed.splitlines()):
        try:
            found = json.loads(line)
        except ValueError:
            continue
        if isinstance(found, dict):
            return found
    return None
