"""Unpacking `.tgz` archives of others: plain files in one directory, within bounds, or nothing."""

import gzip
import io
import shutil
import tarfile
import tempfile
import zlib
from pathlib import Path
from typing import Self

import attrs
import numpy as np
from numpy.lib import format as npy_format

from openxla.benchmark.artifacts.progress import human_bytes
from openxla.benchmark.artifacts.stores.errors import StoreError
from openxla.benchmark.artifacts.strict_json import why_no_object_name

_PIECE_BYTES = 1 << 18
# Long names come in headers of their own, which tarfile reads into memory before we see them.
_MOST_HEADER_BYTES = 64 << 10
_MAGIC_OF_NPY = b"\x93NUMPY"


class ArchiveError(StoreError):
    """An archive is damaged, or holds what it must not; nothing of it was unpacked."""


@attrs.frozen(kw_only=True)
class Limits:
    """What an archive may become."""

    total_bytes: int = 16 << 30
    members: int = 10_000


def unpack(archive: Path, target: Path, *, limits: Limits | None = None) -> list[Path]:
    """Unpacks a gzipped tar archive into a new directory; all of it, or nothing.

    Modes, owners and times of the archive are ignored.

    Args:
      archive: the file.
      target: a directory that does not exist.
      limits: what to refuse.

    Returns:
      the files, in the order of their names.

    Raises:
      ArchiveError: it is damaged, too large, holds anything but files and directories, a name
        twice, a name that leads elsewhere, or an array of Python objects.
    """
    limits = limits or Limits()
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.exists():
        raise ArchiveError(f"{archive}: {target} exists already")
    new = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        names = _unpack_into(archive, new, limits)
        for name in names:
            check_npy(new / name, where=f"{archive}: {name}")
        new.chmod(0o755)
        new.rename(target)
    except (tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise ArchiveError(f"{archive} is damaged: {error or type(error).__name__}") from error
    finally:
        shutil.rmtree(new, ignore_errors=True)
    return [target / name for name in sorted(names)]


def check_npy(path: Path, *, where: str) -> None:
    """Raises ArchiveError if a file is an array of Python objects, or a damaged array.

    Reading objects would run what the file says. Files that are no arrays pass.
    """
    with path.open("rb") as file:
        if file.read(len(_MAGIC_OF_NPY)) != _MAGIC_OF_NPY:
            if path.suffix == ".npy":
                raise ArchiveError(f"{where} is no array, in spite of its name")
            return
    try:
        mapped = np.lib.format.open_memmap(path, mode="r")
    except ValueError as error:
        if _holds_objects(path):
            raise ArchiveError(f"{where} holds Python objects, which are never read") from error
        # An array without elements, or without dimensions, can not be mapped.
        try:
            np.load(path, allow_pickle=False)
        except (ValueError, EOFError) as inner:
            raise ArchiveError(f"{where} is a damaged array: {inner}") from inner
    else:
        del mapped


def _holds_objects(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            version = npy_format.read_magic(file)
            read = (
                npy_format.read_array_header_1_0
                if version == (1, 0)
                else npy_format.read_array_header_2_0
            )
            return bool(read(file)[2].hasobject)
    except ValueError:
        return False


def _unpack_into(archive: Path, directory: Path, limits: Limits) -> list[str]:
    names: set[str] = set()
    directories: set[str] = set()
    left, members = limits.total_bytes, 0
    with (
        gzip.open(archive) as unzipped,
        _Bounded(unzipped, archive, limits) as bounded,
        tarfile.open(fileobj=bounded, mode="r|", tarinfo=_StrictTarInfo) as tar,
    ):
        for member in tar:
            members += 1
            if members > limits.members:
                raise ArchiveError(f"{archive} has more than {limits.members} members")
            name = _checked_name(archive, member)
            if not name:
                continue
            if name in names or (name in directories and not member.isdir()):
                raise ArchiveError(f"{archive} holds {name!r} twice")
            parents = {name[:i] for i, c in enumerate(name) if c == "/"}
            if inside := parents & names:
                raise ArchiveError(f"{archive} holds {min(inside)!r} as a file and a directory")
            directories |= parents
            if member.isdir():
                directories.add(name)
                (directory / name).mkdir(parents=True, exist_ok=True)
                continue
            left -= member.size
            if left < 0:
                raise _too_large(archive, limits)
            _write(tar, member, directory / name)
            names.add(name)
        # The checksum comes last, behind what tar reads.
        while bounded.read(_PIECE_BYTES):
            pass
    return sorted(names)


def _checked_name(archive: Path, member: tarfile.TarInfo) -> str:
    """Returns the name of a member in the target, empty for the target itself."""
    if not (member.isdir() or member.type in (tarfile.REGTYPE, tarfile.AREGTYPE)):
        raise ArchiveError(
            f"{archive}: {member.name!r} is neither a file nor a directory (type {member.type!r})"
        )
    name = member.name
    # `tar -C folder .` writes "./x"; tarfile writes the folder itself as "/".
    while name.startswith("./"):
        name = name.removeprefix("./")
    if member.isdir() and name in ("", ".", "/"):
        return ""
    if reason := why_no_object_name(name.rstrip("/") if member.isdir() else name):
        raise ArchiveError(f"{archive}: the name {member.name!r} {reason}")
    return name.rstrip("/")


def _write(tar: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    source = tar.extractfile(member)
    assert source is not None
    with path.open("xb") as file:
        shutil.copyfileobj(source, file, _PIECE_BYTES)
    if path.stat().st_size != member.size:
        raise tarfile.ReadError(f"{member.name!r} ends too early")


class _StrictTarInfo(tarfile.TarInfo):
    """A header whose extra data is bounded."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        member = super().frombuf(buf, encoding, errors)
        is_extra = member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.DIRTYPE)
        if is_extra and member.size > _MOST_HEADER_BYTES:
            raise tarfile.ReadError(f"a header of {human_bytes(member.size)}")
        return member


class _Bounded(io.RawIOBase):
    """What comes out of gzip, up to a bound: a small archive may hold petabytes of zeros."""

    def __init__(self, file: gzip.GzipFile, archive: Path, limits: Limits) -> None:
        self._file, self._archive, self._limits = file, archive, limits
        # Headers and padding: two blocks a member, and the end of the archive.
        self._left = limits.total_bytes + 2048 * limits.members + (1 << 20)

    def read(self, size: int = -1) -> bytes:
        piece = self._file.read(size)
        self._left -= len(piece)
        if self._left < 0:
            raise _too_large(self._archive, self._limits)
        return piece


def _too_large(archive: Path, limits: Limits) -> ArchiveError:
    return ArchiveError(
        f"{archive} becomes larger than {human_bytes(limits.total_bytes)}; not unpacked"
    )
