"""The local cache of artifacts: objects named by their content, and views with file names.

    <root>/artifact_cache/
        objects/ab/abcdef...     content by sha256, read-only; added after its digest was verified
        partial/abcdef...        partial download, to be resumed
        locks/abcdef....lock     held while a process fetches it
        unpacked/abcdef.../      archives of the OpenXLA suite's kind, unpacked
        models/<model>/<first 16 digits of the manifest's sha256>/...
                                 hard links with the names that the manifest gives

The modification time of an object is derived from its digest. Writing to an object changes its
time, so one `stat` detects changes since its digest was computed, without separate records that
could get lost or disagree.
"""

import os
import shutil
import stat
import threading
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import attrs
from filelock import FileLock, Timeout

from openxla.benchmark.files import link, sha256_of
from openxla.benchmark.installation import root_dir

_READ_ONLY = 0o444
_DIGITS_OF_VIEW = 16
# Another process may be about to link an object that has just arrived.
_YOUNG_S = 3600.0


@attrs.frozen(kw_only=True)
class Usage:
    """Disk usage of a part of the cache."""

    files: int
    size_bytes: int


class Cache:
    """A directory that any number of processes may share."""

    def __init__(self, directory: Path | None = None) -> None:
        self.directory = (directory or root_dir() / "artifact_cache").absolute()

    def object_path(self, sha256: str) -> Path:
        """Returns the path of an object."""
        return self.directory / "objects" / sha256[:2] / sha256

    def partial_path(self, sha256: str) -> Path:
        """Returns the path of a partial download."""
        return self.directory / "partial" / sha256

    def view(self, model: str, manifest_sha256: str) -> Path:
        """Returns the directory that links a model's files under their names."""
        return self.directory / "models" / model / manifest_sha256[:_DIGITS_OF_VIEW]

    def lock(self, sha256: str) -> FileLock:
        """Returns the lock of an object; the system releases it if its holder dies."""
        path = self.directory / "locks" / f"{sha256}.lock"
        path.parent.mkdir(parents=True, exist_ok=True)
        return FileLock(path)

    def holds(self, sha256: str, size_bytes: int) -> bool:
        """Returns whether an object is present, and unchanged since its digest was computed."""
        return is_unchanged(self.object_path(sha256), sha256, size_bytes)

    def missing_bytes(self, sha256: str, size_bytes: int) -> int:
        """Returns the disk space needed to complete an object."""
        if self.holds(sha256, size_bytes):
            return 0
        there = _usage(_facts([self.partial_path(sha256)])).size_bytes
        return max(0, size_bytes - there)

    def keep(self, path: Path, sha256: str) -> None:
        """Moves a file on this file system into the cache; its digest has been verified."""
        target = self.object_path(sha256)
        target.parent.mkdir(parents=True, exist_ok=True)
        os.utime(path, (_stamp_s(sha256), _stamp_s(sha256)))
        path.replace(target)
        # Last: after a kill, the next download must be able to write to a partial file.
        target.chmod(_READ_ONLY)

    def link(self, sha256: str, size_bytes: int, path: Path) -> None:
        """Links an object under a name in a view, replacing any previous link."""
        if is_unchanged(path, sha256, size_bytes):
            return
        # Without the name, which may be almost as long as file systems allow.
        temporary = path.with_name(f".{threading.get_native_id()}.{time.monotonic_ns()}")
        link(self.object_path(sha256), temporary)  # a copy keeps the time, too
        temporary.replace(path)

    def objects(self) -> Iterator[Path]:
        """Yields all objects."""
        for path in sorted((self.directory / "objects").glob("??/*")):
            if len(path.name) == 64:
                yield path

    def usage(self) -> dict[str, Usage]:
        """Returns the usage of each part; views are links and take no space."""
        walked = os.walk(self.directory / "unpacked")
        unpacked = (Path(folder, name) for folder, _, names in walked for name in names)
        return {
            "objects": _usage(_facts(self.objects())),
            "partial": _usage(_facts((self.directory / "partial").glob("*"))),
            "unpacked": _usage(_facts(unpacked)),
        }

    def views(self) -> list[Path]:
        """Returns the directories of all models."""
        return sorted((self.directory / "models").glob("*/*"))

    def verify(self) -> list[str]:
        """Computes the digest of every object and removes damaged ones.

        Returns:
          sha256 of the removed objects; the next fetch downloads them again.
        """
        removed = []
        for path in self.objects():
            with suppress(FileNotFoundError):
                if sha256_of(path) != path.name:
                    # Views link the same file: mark their links as changed, too.
                    os.utime(path)
                    path.unlink()
                    removed.append(path.name)
                elif not is_unchanged(path, path.name, path.stat().st_size):
                    # The time changed, but not the content: restore the time.
                    os.utime(path, (_stamp_s(path.name), _stamp_s(path.name)))
        return removed

    def remove_model(self, model: str) -> None:
        """Removes the views of a model; `discard` then frees objects without other users."""
        for directory in {view.parent for view in self.views() if view.parent.name == model}:
            shutil.rmtree(directory)

    def collect(self) -> Usage:
        """Removes objects without another link, and unfinished files; returns the freed space."""
        freed = self._remove_unused(self._leftovers(), _YOUNG_S)
        # Killed processes leave names that begin with a dot, which no artifact has.
        for place in (self.directory / "models", self.directory / "unpacked"):
            for path in list(place.rglob(".*")):
                if path.exists() and time.time() - path.lstat().st_ctime >= _YOUNG_S:
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
        return freed

    def views_besides(self, keep: Collection[str]) -> list[Path]:
        """Returns the views of all manifests except those with one of these sha256."""
        kept_views = {sha256[:_DIGITS_OF_VIEW] for sha256 in keep}
        return [view for view in self.views() if view.name not in kept_views]

    def collectable(self) -> Usage:
        """Returns what `collect` would free now, keeping all views."""
        leftovers = _facts(self._leftovers())
        return _usage(facts for facts in leftovers if _is_unused(facts, _YOUNG_S))

    def discard(self, digests: Collection[str]) -> Usage:
        """Removes those objects that have no other link, of any age; returns the freed space."""
        return self._remove_unused((self.object_path(sha256) for sha256 in digests), 0.0)

    def _leftovers(self) -> Iterator[Path]:
        yield from self.objects()
        yield from sorted((self.directory / "partial").glob("*"))

    def _remove_unused(self, paths: Iterable[Path], young_s: float) -> Usage:
        """Removes files that have no second link, are not young, and are not being fetched."""
        sizes = []
        for path in paths:
            with suppress(Timeout, FileNotFoundError), self.lock(path.name).acquire(timeout=0):
                facts = path.stat()
                if _is_unused(facts, young_s):
                    path.unlink()
                    sizes.append(facts.st_size)
        return Usage(files=len(sizes), size_bytes=sum(sizes))


def _is_unused(facts: os.stat_result, young_s: float) -> bool:
    return facts.st_nlink == 1 and time.time() - facts.st_ctime >= young_s


def is_unchanged(path: Path, sha256: str, size_bytes: int) -> bool:
    """Returns whether a cached file has the size and time that match its digest."""
    try:
        facts = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return (
        stat.S_ISREG(facts.st_mode)
        and facts.st_size == size_bytes
        and facts.st_mtime_ns == _stamp_s(sha256) * 1_000_000_000
    )


def _stamp_s(sha256: str) -> int:
    """Returns a time between 2001 and 2018; even, because some file systems resolve only 2 s."""
    return 1_000_000_000 + 2 * int(sha256[:7], 16)


def _facts(paths: Iterable[Path]) -> Iterator[os.stat_result]:
    """Yields the facts of files, without those that another process removes meanwhile."""
    for path in paths:
        with suppress(FileNotFoundError):
            yield path.stat()


def _usage(files: Iterable[os.stat_result]) -> Usage:
    sizes = [facts.st_size for facts in files]
    return Usage(files=len(sizes), size_bytes=sum(sizes))
