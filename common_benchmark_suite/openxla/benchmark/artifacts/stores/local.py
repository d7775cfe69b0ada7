"""A directory as a store."""

import errno
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from openxla.benchmark.artifacts.stores import (
    AccessDeniedError,
    Advance,
    AlreadyExistsError,
    Body,
    DamagedError,
    LocalFile,
    NoSpaceError,
    NotFoundError,
    Store,
    StoreError,
)
from openxla.benchmark.files import UNFINISHED, new_file, sha256_of

_CHUNK_BYTES = 1 << 20


class LocalStore(Store):
    """Objects are files below a directory. Partially written files are never listed."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory.expanduser().absolute()
        self.url = str(self.directory)

    def sizes(self, prefix: str = "") -> dict[str, int]:
        """Returns the files whose relative paths begin with a prefix."""
        sizes = {
            path.relative_to(self.directory).as_posix(): path.stat().st_size
            for path in self.directory.rglob("*")
            if path.is_file() and not path.name.startswith(UNFINISHED)
        }
        return {name: sizes[name] for name in sorted(sizes) if name.startswith(prefix)}

    def open(self, name: str, *, offset: int = 0) -> Body:
        """Opens a file at an offset."""
        path = self._path(name)
        with _translated(path):
            file = path.open("rb", buffering=0)
        file.seek(offset)

        def read(most: int) -> bytes:
            with _translated(path):
                return file.read(most)

        size = os.fstat(file.fileno()).st_size
        return Body(offset=offset, total_bytes=size, read=read, close=file.close)

    def put(self, name: str, file: LocalFile, advance: Advance) -> None:
        """Copies a file to a temporary name, syncs it, and renames it unless the name is taken."""
        path, digest = self._path(name), hashlib.sha256()
        with _translated(path):
            if path.exists():
                raise FileExistsError
            path.parent.mkdir(parents=True, exist_ok=True)
            with new_file(path, overwrite=False) as temporary:
                with file.path.open("rb") as read, temporary.open("wb") as written:
                    while piece := read.read(_CHUNK_BYTES):
                        written.write(piece)
                        digest.update(piece)
                        advance(len(piece))
                if digest.hexdigest() != file.sha256:
                    raise DamagedError(f"{file.path} changed while it was being copied to {path}")

    def check(self, name: str, file: LocalFile) -> None:
        """Reads the file again."""
        path = self._path(name)
        with _translated(path):
            digest = sha256_of(path)
        if digest != file.sha256:
            raise DamagedError(f"{path} has sha256 {digest}, but {file.path} has {file.sha256}")

    def _path(self, name: str) -> Path:
        parts = name.split("/")
        if any(part in ("", ".", "..") for part in parts):
            raise StoreError(f"{name!r} is not a valid object name: it leads out of {self.url}")
        return self.directory.joinpath(*parts)


@contextmanager
def _translated(path: Path) -> Iterator[None]:
    """Translates system errors into store errors that name the path."""
    try:
        yield
    except FileExistsError as error:
        raise AlreadyExistsError(f"{path} already exists; artifacts are written once") from error
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NotFoundError(f"{path}: no such file") from error
    except IsADirectoryError as error:
        raise NotFoundError(f"{path} is a directory, not a file") from error
    except PermissionError as error:
        raise AccessDeniedError(f"{path}: {error.strerror}; check its owner") from error
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise NoSpaceError(
                f"{path}: {error.strerror}; free some space and run again"
            ) from error
        raise StoreError(f"{path}: {error}") from error
