"""Packing `.tgz` archives: the same content under the same names gives the same bytes.

Members come in the order of their names, with one time, owner and mode for all. What is left to
differ is the compressor: another version of zlib may find other, equally right bytes.
"""

import gzip
import os
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from openxla.benchmark.artifacts.strict_json import why_no_object_name

# Of `gzip`: numbers of a model's outputs shrink little, whatever the level.
COMPRESSION_LEVEL = 6
# Weights do not shrink at all; this level only says where the archive ends, and that it is whole.
FASTEST = 1
_MODE = 0o644


def pack(target: Path, members: Mapping[str, Path], *, level: int = COMPRESSION_LEVEL) -> None:
    """Writes a gzipped tar archive; the file appears whole, or not at all.

    Args:
      target: the archive.
      members: name in the archive to the file that is its content; symbolic links are followed.
      level: of compression, 0 to 9.

    Raises:
      ValueError: a name would not be unpacked: it leads elsewhere, or is file and directory.
      OSError: a file can not be read, or changes its size meanwhile.
    """
    _check_names(members)
    target.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            _write(file, members, level)
        Path(temporary).chmod(_MODE)
        Path(temporary).replace(target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def pack_directory(target: Path, directory: Path, *, level: int = COMPRESSION_LEVEL) -> None:
    """Writes an archive of all files below a directory, named from there; see `pack`."""
    files = (path for path in directory.rglob("*") if path.is_file())
    members = {path.relative_to(directory).as_posix(): path for path in files}
    pack(target, members, level=level)


def _write(file: IO[bytes], members: Mapping[str, Path], level: int) -> None:
    with (
        # Neither name nor time of the archive goes into its first bytes.
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
                    raise OSError(f"{path} grew while it was packed")


def _check_names(members: Mapping[str, Path]) -> None:
    for name in members:
        if reason := why_no_object_name(name):
            raise ValueError(f"the name {name!r} {reason}")
    directories = {name[:i] for name in members for i, c in enumerate(name) if c == "/"}
    if both := directories & set(members):
        raise ValueError(f"the name {min(both)!r} is both a file and a directory")
