"""The persistent cache of TensorFlow's XLA: a file for each program that was compiled.

TensorFlow counts loads from it, but lets no one read the count. The files tell as much: a program
is written right after it was compiled, and not when it was loaded.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path

import attrs

_FLAG = re.compile(r"--tf_xla_persistent_cache_directory=(\S+)")

# By file: what changes when it is written anew.
Files = Mapping[Path, tuple[int, int]]


@attrs.frozen(kw_only=True)
class CacheUse:
    """What the compilation of one program took from the cache or put into it; None if not known.

    Attributes:
      hits: 1 if the program was there.
      misses: how many programs were compiled and written.
      size_bytes: the size of what was loaded or written.
    """

    hits: int | None = None
    misses: int | None = None
    size_bytes: int | None = None


class PersistentCache:
    """The cache's directory, as the flags of this process name it."""

    def __init__(self) -> None:
        found = _FLAG.search(os.environ.get("TF_XLA_FLAGS", ""))
        self._directory = Path(found[1]) if found else None

    def files(self) -> Files:
        """Returns what is in it."""
        if self._directory is None or not self._directory.is_dir():
            return {}
        states = {path: path.stat() for path in self._directory.iterdir() if path.is_file()}
        return {path: (state.st_ino, state.st_mtime_ns) for path, state in states.items()}

    def use_since(self, before: Files) -> CacheUse:
        """Returns what one compilation did that began with these files in the cache.

        Nothing is known if it left no trace: there is no cache, or it cannot hold the program.
        """
        after = self.files()
        written = [path for path, state in after.items() if before.get(path) != state]
        if not after:
            return CacheUse()
        return CacheUse(
            hits=int(not written),
            misses=len(written),
            size_bytes=sum(path.stat().st_size for path in written or after),
        )
