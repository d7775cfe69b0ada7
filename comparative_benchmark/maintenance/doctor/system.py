"""The machine as the checks see it, and what they say about it."""

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
      name: what was looked at.
      status: what it means for a measurement; `unknown` where the system does not tell.
      value: what was read.
      cost: what it costs a measurement.
      fix: what to do, where possible what to type; empty where there is nothing to do.
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
            command, capture_output=True, text=True, timeout=_COMMAND_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout if done.returncode == 0 else None


@attrs.frozen(kw_only=True)
class System:
    """The machine as the checks see it.

    Attributes:
      root: stands for `/`.
      artifact_root: where the suite writes.
      cpus: CPUs that this process may run on.
      run: runs a command; its output, or None where there is no such command or it failed.
    """

    root: Path = Path("/")
    artifact_root: Path
    cpus: tuple[int, ...] = attrs.field(factory=lambda: tuple(sorted(os.sched_getaffinity(0))))
    run: Runner = _output

    def read(self, path: str) -> str | None:
        """Returns the text of a file, without space around it; None where it cannot be read."""
        try:
            return self._at(path).read_text(encoding="utf-8", errors="replace").strip()
        except OSError:
            return None

    def exists(self, path: str) -> bool:
        """Returns whether there is such a file."""
        return self._at(path).exists()

    def matching(self, pattern: str) -> list[str]:
        """Returns the files whose paths match, in order."""
        found = sorted(self.root.glob(pattern.lstrip("/")))
        return ["/" + str(path.relative_to(self.root)) for path in found]

    def of_cpus(self, pattern: str) -> list[str]:
        """Returns the files of our CPUs that match, e.g. `topology/thread_siblings_list`."""
        found: list[str] = []
        for cpu in self.cpus:
            found += self.matching(f"{CPU_DIRECTORY}/cpu{cpu}/{pattern}")
        return found

    def shell_of_cpus(self, pattern: str) -> str:
        """Returns the same files as a pattern for a shell."""
        if len(self.matching(f"{CPU_DIRECTORY}/cpu[0-9]*")) <= len(self.cpus):
            return f"{CPU_DIRECTORY}/cpu[0-9]*/{pattern}"
        return " ".join(f"{CPU_DIRECTORY}/cpu{cpu}/{pattern}" for cpu in self.cpus)

    def _at(self, path: str) -> Path:
        return self.root / path.lstrip("/")
