"""Which of the processes that have a context on a GPU are none of ours.

Nobody is accused without evidence: the numbers must be of our namespace, which they are where ours
is among them, and the process must be one that /proc shows.
"""

import os
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

PROC = Path("/proc")
# Every worker, and whatever it starts, has it in its environment.
SESSION_VARIABLE = "CBS_SESSION"


def foreign(pids: Sequence[int] | None, proc: Path = PROC) -> tuple[int, ...] | None:
    """Returns the processes that do not belong to the run of this worker.

    Workers of the same run are stopped while another is measured, but keep their contexts.

    Args:
      pids: all that have a context, this process among them; None where nobody told.
      proc: stands for `/proc`.

    Returns:
      None where it is not known of any that it is foreign, nor of all that they are not.
    """
    if pids is None or os.getpid() not in pids:
        return None
    ours = {pid: _is_ours(pid, proc) for pid in pids}
    found = tuple(pid for pid, answer in ours.items() if answer is False)
    return None if not found and None in ours.values() else found


def _is_ours(pid: int, proc: Path) -> bool | None:
    """Tells whether a process is this one, or of a worker whose parent is ours."""
    if pid == os.getpid():
        return True
    started = _started(pid, proc)
    return None if started is None else _look(pid, started, os.getppid(), proc)


@lru_cache(maxsize=256)
def _look(pid: int, _started: str, parent: int, proc: Path) -> bool | None:
    """Looks at a process once; its start tells it from a later one of the same number."""
    try:
        environment = (proc / str(pid) / "environ").read_bytes()
    except PermissionError:
        # Workers run as we do.
        return False if _owner(pid, proc) not in (None, os.getuid()) else None
    except OSError:
        return None
    if not environment:  # a process that is just ending, or one of the kernel
        return None
    mark = f"{SESSION_VARIABLE}=".encode()
    if not any(variable.startswith(mark) for variable in environment.split(b"\0")):
        return False
    above = list(_ancestors(pid, proc))
    if parent in above:
        return True
    # Marked, and of another run; or left behind by a worker, whose run nobody can tell any more.
    return False if above and above[0] > 1 else None


def _ancestors(pid: int, proc: Path) -> Iterator[int]:
    """Yields the parent, its parent, and so on, to the first process."""
    while pid > 1 and (fields := _status(pid, proc)):
        pid = int(fields[1])
        yield pid


def _started(pid: int, proc: Path) -> str | None:
    fields = _status(pid, proc)
    return fields[19] if fields else None


def _status(pid: int, proc: Path) -> list[str] | None:
    """Returns the fields after the name, which may hold spaces and brackets: state, parent, ..."""
    try:
        text = (proc / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return text.rpartition(")")[2].split()


def _owner(pid: int, proc: Path) -> int | None:
    try:
        return (proc / str(pid)).stat().st_uid
    except OSError:
        return None
