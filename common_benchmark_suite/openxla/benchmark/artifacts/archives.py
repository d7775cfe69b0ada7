"""`.tgz` archives: unpacks untrusted ones within limits, and packs ours reproducibly.

Packed members are sorted by name and share one time, owner and mode, so the same content under the
same names gives the same bytes. Only the compressor may differ: another version of zlib may produce
other, equally valid bytes.
"""

import gzip
import io
import os
import shutil
import sys
import tarfile
import tokenize
import warnings
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, Self

import attrs
import numpy as np
import numpy.typing as npt

from openxla.benchmark.artifacts import array_files
from openxla.benchmark.artifacts.cache import Cache
from openxla.benchmark.artifacts.stores import Meter, StoreError, Stores, human_bytes
from openxla.benchmark.artifacts.strict_json import check_names, why_no_object_name
from openxla.benchmark.artifacts.transfers import FetchOptions, Transfer, Wanted, download
from openxla.benchmark.files import new_directory, new_file

# A `gzip` level. Model outputs compress poorly at any level.
COMPRESSION_LEVEL = 6
# Weights do not compress at all; this level only adds gzip's end marker and checksum.
FASTEST = 1
_MODE = 0o644
_PIECE_BYTES = 1 << 18
# Long names have separate headers, which tarfile reads into memory before we see them.
_MOST_HEADER_BYTES = 64 << 10
_MAGIC_OF_NPY = b"\x93NUMPY"
# Exceptions of tarfile and numpy for malformed headers, in addition to their own.
_NOT_EXPECTED = (
    *(ArithmeticError, LookupError, MemoryError, RecursionError, SyntaxError),
    *(TypeError, ValueError, tokenize.TokenError),
)
_PLAIN = (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.DIRTYPE)

_STEMS = {"inputs_npy.tgz": "input", "outputs_npy.tgz": "output"}


class ArchiveError(StoreError):
    """An archive is damaged, or holds forbidden content; nothing was unpacked."""


@attrs.frozen(kw_only=True)
class Limits:
    """Limits on the content of an archive."""

    total_bytes: int = 16 << 30
    members: int = 10_000


def unpack(archive: Path, target: Path, *, limits: Limits | None = None) -> list[Path]:
    """Unpacks a gzipped tar archive into a new directory; all of it, or nothing.

    Modes, owners and times in the archive are ignored.

    Args:
      archive: the file.
      target: a directory that does not exist.
      limits: limits on the content.

    Returns:
      the files, ordered by name.

    Raises:
      ArchiveError: the archive is damaged or too large, or holds anything but files and
        directories, a duplicate name, a name that leads outside, or an array of Python objects.
    """
    if target.exists():
        raise ArchiveError(f"{archive}: {target} already exists")
    try:
        with new_directory(target) as new:
            _unpack_into(archive, new, limits or Limits())
            files = [path.relative_to(new) for path in new.rglob("*") if path.is_file()]
            for name in files:
                check_npy(new / name, where=f"{archive}: {name}")
    except (tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError, *_NOT_EXPECTED) as error:
        raise ArchiveError(f"{archive} is damaged: {error or type(error).__name__}") from error
    return [target / name for name in sorted(files, key=Path.as_posix)]


def check_npy(path: Path, *, where: str) -> None:
    """Raises ArchiveError if a file is an array of Python objects, or a damaged array.

    Loading objects would run code from the file. Files that are not arrays pass.
    """
    with path.open("rb") as file:
        if file.read(len(_MAGIC_OF_NPY)) != _MAGIC_OF_NPY:
            if path.suffix == ".npy":
                raise ArchiveError(f"{where} is not an array, although its name ends with .npy")
            return
    try:
        with warnings.catch_warnings():
            # If the product of dimensions overflows, mapping fails, or the file is too short.
            warnings.simplefilter("ignore", RuntimeWarning)
            np.lib.format.open_memmap(path, mode="r")
    except _NOT_EXPECTED:
        # Arrays without elements or dimensions cannot be mapped either.
        try:
            np.load(path, allow_pickle=False)
        except (EOFError, *_NOT_EXPECTED) as error:
            if "Object arrays" in str(error):
                raise ArchiveError(
                    f"{where} contains Python objects, which are never loaded"
                ) from error
            raise ArchiveError(f"{where} is a damaged array: {error}") from error


def _unpack_into(archive: Path, directory: Path, limits: Limits) -> None:
    left = limits.total_bytes
    with (
        gzip.open(archive) as unzipped,
        _Bounded(unzipped, archive, limits) as bounded,
        tarfile.open(fileobj=bounded, mode="r|", tarinfo=_StrictTarInfo) as tar,
    ):
        for count, member in enumerate(tar, start=1):
            if count > limits.members:
                raise ArchiveError(f"{archive} has more than {limits.members} members")
            if member.type not in _PLAIN or member.issparse():
                raise ArchiveError(
                    f"{archive}: {member.name!r} is neither a file nor a directory "
                    f"(type {member.type!r})"
                )
            name = member.name
            # `tar -C folder .` writes "./x"; tarfile writes the folder itself as "/".
            while name.startswith("./"):
                name = name.removeprefix("./")
            if member.isdir() and name in ("", ".", "/"):
                continue
            name = name.rstrip("/") if member.isdir() else name
            if reason := why_no_object_name(name):
                raise ArchiveError(f"{archive}: the name {member.name!r} {reason}")
            left -= member.size
            if left < 0:
                raise _too_large(archive, limits)
            path = directory / name
            try:
                if member.isdir():
                    path.mkdir(parents=True, exist_ok=True)
                    continue
                path.parent.mkdir(parents=True, exist_ok=True)
                with path.open("xb") as file:
                    _copy(tar, member, file)
            except (FileExistsError, NotADirectoryError) as error:
                raise ArchiveError(
                    f"{archive} contains {name!r} twice, or as both a file and a directory"
                ) from error
        # The checksum comes last, after the data that tar reads.
        while bounded.read(_PIECE_BYTES):
            pass


def _copy(tar: tarfile.TarFile, member: tarfile.TarInfo, file: IO[bytes]) -> None:
    source = tar.extractfile(member)
    assert source is not None
    shutil.copyfileobj(source, file, _PIECE_BYTES)
    if file.tell() != member.size:
        raise tarfile.ReadError(f"{member.name!r} is truncated")


class _StrictTarInfo(tarfile.TarInfo):
    """A header with a limit on its extra data."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        member = super().frombuf(buf, encoding, errors)
        if member.type not in _PLAIN and member.size > _MOST_HEADER_BYTES:
            raise tarfile.ReadError(f"a header is too large ({human_bytes(member.size)})")
        return member


class _Bounded(io.RawIOBase):
    """Decompressed data up to a limit: a small archive may expand to petabytes of zeros."""

    def __init__(self, file: gzip.GzipFile, archive: Path, limits: Limits) -> None:
        self._file, self._archive, self._limits = file, archive, limits
        # Headers and padding: two blocks per member, and the end of the archive.
        self._left = limits.total_bytes + 2048 * limits.members + (1 << 20)

    def read(self, size: int = -1) -> bytes:
        piece = self._file.read(size)
        self._left -= len(piece)
        if self._left < 0:
            raise _too_large(self._archive, self._limits)
        return piece


def _too_large(archive: Path, limits: Limits) -> ArchiveError:
    return ArchiveError(
        f"{archive} would unpack to more than {human_bytes(limits.total_bytes)}; not unpacked"
    )


def pack(target: Path, members: Mapping[str, Path], *, level: int = COMPRESSION_LEVEL) -> None:
    """Writes a gzipped tar archive; the file appears complete, or not at all.

    Args:
      target: the archive.
      members: name in the archive -> source file; symbolic links are followed.
      level: compression level, 0 to 9.

    Raises:
      ValueError: a name could not be unpacked: it leads outside, or is both file and directory.
      OSError: a file cannot be read, or its size changes meanwhile.
    """
    check_names(members)
    target.parent.mkdir(parents=True, exist_ok=True)
    with (
        new_file(target) as temporary,
        temporary.open("wb") as file,
        # Keeps the archive's name and time out of the gzip header.
        gzip.GzipFile("", "wb", compresslevel=level, fileobj=file, mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w|", format=tarfile.GNU_FORMAT) as tar,
    ):
        for name in sorted(members):
            path = members[name]
            with path.open("rb") as content:
                member = tarfile.TarInfo(name)
                member.size = os.fstat(content.fileno()).st_size
                member.mode, member.mtime = _MODE, 0
                tar.addfile(member, content)
                if content.read(1):
                    raise OSError(f"{path} grew while it was being packed")


def pack_directory(target: Path, directory: Path, *, level: int = COMPRESSION_LEVEL) -> None:
    """Packs all files below a directory, named by relative path; see `pack`."""
    files = (path for path in directory.rglob("*") if path.is_file())
    members = {path.relative_to(directory).as_posix(): path for path in files}
    pack(target, members, level=level)


def read(
    url: str,
    archive: str,
    *,
    cache: Cache | None = None,
    options: FetchOptions | None = None,
    limits: Limits | None = None,
) -> list[npt.NDArray[Any]]:
    """Returns the arrays of an archive below a model's URL, in order.

    The digest is not known in advance. Content that was unpacked once is not unpacked again.

    Args:
      url: URL of the model's directory.
      archive: `inputs_npy.tgz` or `outputs_npy.tgz`.
      cache: cache for the archive and its content.
      options: download options; `max_bytes` limits the archive.
      limits: limits on the unpacked content.

    Raises:
      StoreError: the archive cannot be downloaded.
      ArchiveError: it is damaged, or holds forbidden content.
    """
    cache, options, stem = cache or Cache(), options or FetchOptions(), _STEMS[archive]
    stores = Stores(options)
    most = sys.maxsize if options.max_bytes is None else options.max_bytes
    wanted = Wanted(store=stores.at(url), name=archive, sha256=None, size_bytes=most)
    transfer = Transfer(options, stores.deadline, Meter(total_bytes=0, total_files=1))
    sha256 = download(wanted, cache, transfer)
    target = cache.directory / "unpacked" / sha256
    with cache.lock(sha256):
        if not target.is_dir():
            unpack(cache.object_path(sha256), target, limits=limits)
    arrays = array_files.load_all(target, stem)
    if not arrays:
        raise ArchiveError(f"{url}/{archive} contains no {stem}_0.npy")
    return arrays
