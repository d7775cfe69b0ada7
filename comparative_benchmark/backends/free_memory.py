"""Memory that a process can still have."""

import contextlib
from pathlib import Path

import psutil


def free_bytes() -> int:
    """Returns what is available now: on the machine, and within the container's limit."""
    free: int = psutil.virtual_memory().available
    with contextlib.suppress(OSError, ValueError):  # no cgroups of version 2, or no limit
        maximum = Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii").strip()
        used = int(Path("/sys/fs/cgroup/memory.current").read_text(encoding="ascii"))
        free = min(free, int(maximum) - used)
    return free
