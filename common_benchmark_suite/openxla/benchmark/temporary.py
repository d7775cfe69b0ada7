"""Temporary folders. The next run removes the folders that a killed run left behind.

Each folder is locked (flock) by the process that made it. The kernel releases the lock when that
process dies, so a folder that can be locked belongs to no process.
"""

import contextlib
import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

# A folder gets this name after it is locked.
PREFIX = "cbs-locked-"
# Name of a folder before that, for less than a millisecond.
_UNLOCKED = "cbs-new-"
_YOUNG_S = 600.0


@contextlib.contextmanager
def temporary_folder(name: str) -> Iterator[str]:
    """Yields a temporary folder of that name, and removes it afterwards.

    Folders left by killed runs are removed first. Files that cannot be removed stay.
    """
    import tempfile  # imported late: it imports `random`

    remove_left(Path(tempfile.gettempdir()))
    unlocked = Path(tempfile.mkdtemp(prefix=f"{_UNLOCKED}{name}-"))
    folder = unlocked.with_name(f"{PREFIX}{unlocked.name.removeprefix(_UNLOCKED)}")
    descriptor = os.open(unlocked, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            unlocked.rename(folder)
        except OSError:  # a file system without locks
            folder = unlocked
        yield str(folder)
    finally:
        os.close(descriptor)
        shutil.rmtree(folder, ignore_errors=True)


def remove_left(parent: Path) -> list[Path]:
    """Removes our folders that no process has locked, and returns them."""
    removed = []
    with contextlib.suppress(OSError):
        for folder in sorted([*parent.glob(f"{PREFIX}*"), *parent.glob(f"{_UNLOCKED}*")]):
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
        is_young = abs(time.time() - found.st_mtime) < _YOUNG_S
        if found.st_uid != os.getuid() or (is_young and folder.name.startswith(_UNLOCKED)):
            return False
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    else:
        return True
    finally:
        os.close(descriptor)
