"""Daemons of workers that have ended: this process adopts and ends them.

A daemon leaves the process group of its worker, and may clear its environment. Its parent then is
the nearest ancestor that asked for orphans (prctl(2), PR_SET_CHILD_SUBREAPER). Workers ask for them
while they run, so that only daemons of workers that have ended come to this process.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_PR_SET_CHILD_SUBREAPER = 36  # <linux/prctl.h>
_MOST_ROUNDS = 100

# Whether this process adopts orphans.
_adopting = False
# Process groups of workers that are running.
_workers: set[int] = set()
_lock = threading.Lock()


@contextlib.contextmanager
def adopting() -> Iterator[None]:
    """Adopts orphans during a command; not in a notebook, whose orphans may be others'."""
    global _adopting  # noqa: PLW0603  # it is a property of the process
    with contextlib.suppress(OSError, AttributeError):
        _adopting = ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1) == 0
    try:
        yield
    finally:
        if _adopting:
            _adopting = False
            ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 0)


def start_worker(*arguments: Any, **keywords: Any) -> "subprocess.Popen[bytes]":
    """Starts a worker in a new process group, so that Ctrl-C does not reach it.

    Takes the arguments of `subprocess.Popen`.
    """
    with _lock:
        worker = subprocess.Popen(*arguments, process_group=0, **keywords)
        _workers.add(worker.pid)
    return worker


def worker_ended(pid: int) -> None:
    """Ends the orphans of a worker that has ended, and what they started."""
    with _lock:
        _workers.discard(pid)
        # An orphan that is ended hands its own children on.
        for _ in range(_MOST_ROUNDS if _adopting else 0):
            orphans = [pid for pid in _children() if _is_orphan(pid)]
            if not orphans:
                return
            for orphan in orphans:
                with contextlib.suppress(OSError):
                    os.kill(orphan, signal.SIGKILL)
                    os.waitpid(orphan, 0)


def _children() -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in Path("/proc/self/task").iterdir():
            with contextlib.suppress(OSError, ValueError):
                found += map(int, (task / "children").read_text(encoding="ascii").split())
    return found


def _is_orphan(pid: int) -> bool:
    """Returns whether another process started a child: our own are workers, or of our group."""
    with contextlib.suppress(OSError):
        return os.getpgid(pid) not in {os.getpgid(0), *_workers}
    return False
