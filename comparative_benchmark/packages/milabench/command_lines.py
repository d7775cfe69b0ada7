"""What is run of foreign code, within which limits, and how it ended."""

import shutil
from collections.abc import Mapping
from pathlib import Path

import attrs

from comparative_benchmark.packages.milabench.observed import Observed

# Below it a command that writes is ended: a full disk would cost all others their results.
_DISK_RESERVE_BYTES, _DISK_RESERVE = 256 * 2**20, 0.05


@attrs.frozen(kw_only=True)
class CommandLine:
    """What to run.

    Attributes:
      argv, cwd, env: all variables of the command.
      use_stdout: whether its events come in escapes of its output; they are looked for anyway.
      tag: name of the process in logs and results.
      cpus: on which it may run; empty for all.
    """

    argv: tuple[str, ...]
    cwd: str
    env: Mapping[str, str]
    tag: str
    use_stdout: bool = False
    cpus: tuple[int, ...] = ()
    devices: tuple[str, ...] = ()


@attrs.define(kw_only=True)
class Ended:
    """How a command came to its end.

    Attributes:
      code: exit code; negative for a signal; None where its keeper was killed.
      reason: why we ended it; None if it ended by itself.
      timed_out: whether we ended it because it took too long.
      stopped: whether it had asked to be stopped, as an early stop does.
      left: processes that it left behind, which were killed.
      isolated: whether it had no network; `network_tries`: how often it wanted one.
      instrument_error: which one voir had with its voirfile, and went on without rates.
    """

    tag: str
    observed: Observed
    log_file: Path
    code: int | None = None
    reason: str | None = None
    timed_out: bool = False
    stopped: bool = False
    wall_s: float = 0.0
    cpu_s: float = 0.0
    peak_memory_bytes: int = 0
    involuntary_switches: int = 0
    left: int = 0
    isolated: bool = False
    network_tries: int | None = None
    last_words: str = ""
    instrument_error: str = ""
    devices: tuple[str, ...] = ()
    cpus: tuple[int, ...] = ()


@attrs.frozen(kw_only=True)
class Limits:
    """What commands may use.

    Attributes:
      duration_s: after which they are ended.
      network: whether they have one.
      disk: folder whose disk must keep `disk_reserve_bytes` free.
      protect: files that the commands cannot change, where the system allows that.
    """

    duration_s: float
    network: bool
    disk: Path
    disk_reserve_bytes: int = 0
    protect: tuple[str, ...] = ()


def disk_reserve_bytes(disk: Path) -> int:
    """Returns what must stay free: 256 MiB, of a small disk 5 %."""
    return min(_DISK_RESERVE_BYTES, int(shutil.disk_usage(disk).total * _DISK_RESERVE))
