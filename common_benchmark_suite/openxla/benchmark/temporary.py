"""Temporary folders that outlive no killed process: the next one removes what it left.

Each folder is locked (flock) by the process that made it. The kernel lets go of a lock when its
holder dies, whatever killed it, and in whatever container; so what can be locked is nobody's.
"""

import contextlib
import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

# Only folders that are locked from the first second on are called so.
PREFIX = "cbs-locked-"
# Between being made and being locked a folder looks like one that was left.
_YOUNG_S = 600.0


@contextlib.contextmanager
def temporary_folder(name: str) -> Iterator[str]:
    """Gives a temporary folder of that name, and removes it; as well those that killed ones left.

    A file in it that cannot be removed costs nothing but its place.
    """
    import tempfile  # late: it brings `random`

    remove_left(Path(tempfile.gettempdir()))
    folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{name}-"))
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with contextlib.suppress(OSError):  # a file system without locks: its folders stay
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield str(folder)
    finally:
        os.close(descriptor)
        shutil.rmtree(folder, ignore_errors=True)


def remove_left(parent: Path) -> list[Path]:
    """Removes our folders that no process holds, and returns them."""
    removed = []
    with contextlib.suppress(OSError):
        for folder in sorted(parent.glob(f"{PREFIX}*")):
            if _is_left(folder):
                shutil.rmtree(folder, ignore_errors=True)
                removed.append(folder)
    return removed


def _is_left(folder: Path) -> bool:
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        found = os.fstat(descriptor)
        if found.st_uid != os.getuid() or abs(time.time() - found.st_mtime) < _YOUNG_S:
            return False
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    else:
        return True
    finally:
        os.close(descriptor)
