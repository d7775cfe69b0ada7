"""Memory of other processes, and processes that got away, as Linux tells them in /proc."""

import contextlib
import os
import signal
from pathlib import Path

from comparative_benchmark.backends.free_memory import free_bytes

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
# Left to the parent and the system: the kernel's own killer is coarse and must not be needed.
_RESERVE_BYTES = 1 << 30


def default_limit_bytes() -> int:
    """Returns what a worker may use: memory available now, container included, less 1 GiB."""
    return max(free_bytes() - _RESERVE_BYTES, _RESERVE_BYTES)


def resident_bytes(pid: int) -> int:
    """Returns the resident memory of a process and its descendants; 0 for one that is gone."""
    total = 0
    waiting = [pid]
    while waiting:
        current = waiting.pop()
        try:
            pages = int(Path(f"/proc/{current}/statm").read_text(encoding="ascii").split()[1])
            children = Path(f"/proc/{current}/task/{current}/children").read_text(encoding="ascii")
        except (OSError, IndexError, ValueError):
            continue
        total += pages * _PAGE_BYTES
        waiting += map(int, children.split())
    return total


def oom_kill_count() -> int:
    """Returns how many processes the kernel has killed for want of memory since it started."""
    with contextlib.suppress(OSError, ValueError):
        for line in Path("/proc/vmstat").read_text(encoding="ascii").splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0


def kill_marked(variable: str, value: str) -> None:
    """Kills every process whose environment holds `variable=value`.

    It finds descendants that left the process group (daemons, `setsid`), which no signal to the
    group reaches.
    """
    mark = f"{variable}={value}".encode()
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark in (entry / "environ").read_bytes().split(b"\0"):
                os.kill(int(entry.name), signal.SIGKILL)
