"""Files and directories that appear whole or not at all; digests and second names of files."""

import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from openxla.benchmark.text import encodable

UNFINISHED = ".unfinished-"


@contextmanager
def new_file(path: Path, *, overwrite: bool = True) -> Iterator[Path]:
    """Gives an empty file beside `path` that gets its name when the block succeeds.

    The content is on the disk before the name is: a reader sees the old file or the whole new one,
    after a power cut, too. If the block fails, nothing is left.

    Args:
      path: the name, in a directory that exists.
      overwrite: replace what has the name; else a name that is taken is an error.

    Raises:
      FileExistsError: the name is taken, and not to be overwritten.
    """
    import tempfile  # late: it brings `random`, and `cbs list` only reads

    descriptor, name = tempfile.mkstemp(prefix=UNFINISHED, dir=path.parent)
    os.close(descriptor)
    temporary = Path(name)
    try:
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.chmod(0o644)  # mkstemp makes files that only their owner reads
        if overwrite:
            temporary.replace(path)
        else:
            # A rename would replace what is there; a link to a name that is taken fails.
            os.link(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def new_directory(target: Path, *, whole_with: str = "") -> Iterator[Path]:
    """Gives an empty directory beside `target` that gets its name when the block succeeds.

    If the block fails, nothing is left.

    Args:
      target: the name; the directory above it is made if need be.
      whole_with: a file that only a whole directory holds. Of several processes that make the same
        the first one wins; what is there without that file is replaced. Empty replaces anything.
    """
    import tempfile

    target.parent.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    old = directory.with_name(f"{directory.name}.old")
    try:
        yield directory
        directory.chmod(0o755)
        try:
            directory.rename(target)
        except OSError:
            if not (whole_with and (target / whole_with).is_file()):
                target.rename(old)
                directory.rename(target)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


def write_atomically(path: Path, content: bytes | str) -> None:
    """Writes a file that appears whole or not at all, and its directory; text as UTF-8."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with new_file(path) as temporary:
        temporary.write_bytes(encodable(content).encode() if isinstance(content, str) else content)


def sha256_of(path: Path) -> str:
    """Returns the sha256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def link(source: Path, target: Path) -> None:
    """Gives a file a second name, or copies it, with its time, where there are no hard links."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except (FileNotFoundError, FileExistsError):
        raise
    except OSError:
        shutil.copy2(source, target)
