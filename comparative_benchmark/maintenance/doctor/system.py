"""The interface of checks to the machine, and their findings."""

import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import attrs

Status = Literal["ok", "warning", "problem", "unknown"]
Runner = Callable[[Sequence[str]], str | None]

CPU_DIRECTORY = "/sys/devices/system/cpu"
_COMMAND_TIMEOUT_S = 20


@attrs.frozen(kw_only=True)
class Finding:
    """One fact about this machine.

    Attributes:
      name: name of the check.
      status: effect on measurements; `unknown` if the fact is unavailable.
      value: the fact.
      cost: how it affects measurements.
      fix: a command or advice; empty if nothing needs to be done.
      verify: a shell command that prints the same fact.
    """

    name: str
    status: Status
    value: str
    cost: str
    fix: str
    verify: str


def _output(command: Sequence[str]) -> str | None:
    try:
        done = subprocess.run(
            command, capture_output=True, errors="replace", timeout=_COMMAND_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout if done.returncode == 0 else None


@attrs.frozen(kw_only=True)
class System:
    """The machine as seen by the checks.

    Attributes:
      root: replaces `/`.
      artifact_root: folder that the suite writes to.
      cpus: CPUs that this process may run on.
      run: runs a command; returns its output, or None if it does not exist or failed.
    """

    root: Path = Path("/")
    artifact_root: Path
    cpus: tuple[int, ...] = attrs.field(factory=lambda: tuple(sorted(os.sched_getaffinity(0))))
    run: Runner = _output

    def read(self, path: str) -> str | None:
        """Returns the text of a file, stripped; None if it cannot be read."""
        try:
            return self._at(path).read_text(encoding="utf-8", errors="replace").strip()
        except OSError:
            return None

    def exists(self, path: str) -> bool:
        """Returns whether a file exists."""
        return self._at(path).exists()

    def matching(self, pattern: str) -> list[str]:
        """Returns the files whose paths match, sorted."""
        paths = sorted(self.root.glob(pattern.lstrip("/")))
        return ["/" + str(path.relative_to(self.root)) for path in paths]

    def of_cpus(self, pattern: str) -> list[str]:
        """Returns the files of our CPUs that match, e.g. `topology/thread_siblings_list`."""
        patterns = (f"{CPU_DIRECTORY}/cpu{cpu}/{pattern}" for cpu in self.cpus)
        return [path for each in patterns for path in self.matching(each)]

    def shell_of_cpus(self, pattern: str) -> str:
        """Returns the same files as a shell pattern."""
        if len(self.matching(f"{CPU_DIRECTORY}/cpu[0-9]*")) <= len(self.cpus):
            return f"{CPU_DIRECTORY}/cpu[0-9]*/{pattern}"
        return " ".join(f"{CPU_DIRECTORY}/cpu{cpu}/{pattern}" for cpu in self.cpus)

    def _at(self, path: str) -> Path:
        return self.root / path.lstrip("/")
