"""A directory as a store."""

import errno
import hashlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from openxla.benchmark.artifacts.stores.errors import (
    AccessDeniedError,
    AlreadyExistsError,
    DamagedError,
    NoSpaceError,
    NotFoundError,
    StoreError,
)
from openxla.benchmark.artifacts.stores.interface import (
    Advance,
    Body,
    LocalFile,
    ObjectInfo,
    Store,
)

_CHUNK_BYTES = 1 << 20
_UNFINISHED = ".unfinished-"


class LocalStore(Store):
    """Objects are files below a directory. Files whose writing was cut short are never listed."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory.expanduser().absolute()
        self.url = str(self.directory)

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Yields the files whose relative paths begin with a prefix."""
        paths = (path for path in self.directory.rglob("*") if path.is_file())
        found = {path.relative_to(self.directory).as_posix(): path for path in paths}
        for name in sorted(found):
            if name.startswith(prefix) and not found[name].name.startswith(_UNFINISHED):
                yield ObjectInfo(name=name, size_bytes=found[name].stat().st_size)

    def stat(self, name: str) -> ObjectInfo:
        """Returns the size of a file."""
        path = self._path(name)
        try:
            if not path.is_file():
                raise NotFoundError(f"{path}: there is no such file")
            return ObjectInfo(name=name, size_bytes=path.stat().st_size)
        except OSError as error:
            raise _store_error(path, error) from error

    def open(self, name: str, *, offset: int = 0) -> Body:
        """Opens a file at an offset."""
        path = self._path(name)
        try:
            if path.is_dir():
                raise NotFoundError(f"{path} is a directory, not a file")
            file = path.open("rb", buffering=0)
        except OSError as error:
            raise _store_error(path, error) from error
        size = os.fstat(file.fileno()).st_size
        file.seek(offset)

        def read(most: int) -> bytes:
            try:
                return file.read(most)
            except OSError as error:
                raise _store_error(path, error) from error

        return Body(offset=offset, total_bytes=size, read=read, close=file.close)

    def put(self, name: str, file: LocalFile, advance: Advance) -> None:
        """Copies a file beside its name, syncs it, and gives it the name if nobody has it."""
        path = self._path(name)
        if path.exists():
            raise AlreadyExistsError(f"{path} exists; artifacts are written once")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor, temporary = tempfile.mkstemp(prefix=_UNFINISHED, dir=path.parent)
            try:
                digest = _copy(file.path, descriptor, advance)
                if digest != file.sha256:
                    raise DamagedError(f"{file.path} changed while it was being copied to {path}")
                Path(temporary).chmod(0o644)
                # A rename would replace what is there; a link to a name that is taken fails.
                os.link(temporary, path)
            finally:
                Path(temporary).unlink(missing_ok=True)
        except FileExistsError as error:
            raise AlreadyExistsError(f"{path} exists; artifacts are written once") from error
        except OSError as error:
            raise _store_error(path, error) from error

    def check(self, name: str, file: LocalFile) -> None:
        """Reads the file again."""
        path = self._path(name)
        try:
            with path.open("rb") as opened:
                digest = hashlib.file_digest(opened, "sha256").hexdigest()
        except OSError as error:
            raise _store_error(path, error) from error
        if digest != file.sha256:
            raise DamagedError(f"{path} has sha256 {digest}, {file.path} has {file.sha256}")

    def _path(self, name: str) -> Path:
        parts = name.split("/")
        if any(part in ("", ".", "..") for part in parts):
            raise StoreError(f"{name!r} is no name of an object: it would lead out of {self.url}")
        return self.directory.joinpath(*parts)


def _copy(source: Path, descriptor: int, advance: Advance) -> str:
    """Copies a file into an open one; returns the sha256 of what was written."""
    digest = hashlib.sha256()
    with source.open("rb") as read, os.fdopen(descriptor, "wb") as written:
        while piece := read.read(_CHUNK_BYTES):
            written.write(piece)
            digest.update(piece)
            advance(len(piece))
        written.flush()
        os.fsync(written.fileno())
    return digest.hexdigest()


def _store_error(path: Path, error: OSError) -> StoreError:
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return NotFoundError(f"{path}: there is no such file")
    if isinstance(error, PermissionError):
        return AccessDeniedError(f"{path}: {error.strerror}; check who owns it")
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return NoSpaceError(f"{path}: {error.strerror}; free some space and run again")
    return StoreError(f"{path}: {error}")
