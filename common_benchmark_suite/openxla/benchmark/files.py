"""Files: atomic creation, digests, links and imports; and temporary folders.

Each temporary folder is locked (flock) by the process that made it. The kernel releases the lock
when that process dies, so a folder that can be locked belongs to no process, and the next run
removes it.
"""

import contextlib
import fcntl
import glob
import hashlib
import importlib.util
import json
import os
import re
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from openxla.benchmark.text import encodable, one_line

# A folder gets this name after it is locked.
TEMPORARY_PREFIX = "cbs-locked-"
# Name of a folder before that, for less than a millisecond.
_UNLOCKED = "cbs-new-"
_YOUNG_S = 600.0

UNFINISHED = ".unfinished-"
_AGAIN = "download it again"
# The start of pointers and error messages.
_POINTERS = (
    (rb"version https?://(git-lfs|git-media|hawser)", "a Git LFS pointer; run `git lfs pull`"),
    (rb"/annex/objects/|(\.\./)*\.git/annex/", "a git-annex pointer; run `git annex get`"),
    (rb"\s*<(!doctype html|html|head|body)\b", f"an HTML page; {_AGAIN}"),
    (rb"\s*(<\?xml[^>]*\?>)?\s*<(Error|ErrorResponse)>", f"an error message in XML; {_AGAIN}"),
    (
        (
            rb"\s*([45]\d\d\b[\s:]|(entry |file |repository )?not found|access denied"
            rb"|forbidden|unauthorized|invalid (username|credentials))"
        ),
        f"a server's error message; {_AGAIN}",
    ),
)
_PACKERS = (
    (b"\x1f\x8b", "gzip"),
    (b"BZh", "bzip2"),
    (b"\xfd7zXZ", "xz"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
)
_LONGEST_MESSAGE = 2**16
_ZEROS = 512


@contextlib.contextmanager
def temporary_folder(name: str) -> Iterator[str]:
    """Yields a temporary folder whose name contains `name`, and removes it afterwards.

    Folders left by killed runs are removed first. Files that cannot be removed stay.
    """
    import tempfile  # imported late: it imports `random`

    remove_left(Path(tempfile.gettempdir()))
    unlocked = Path(tempfile.mkdtemp(prefix=f"{_UNLOCKED}{name}-"))
    folder = unlocked.with_name(f"{TEMPORARY_PREFIX}{unlocked.name.removeprefix(_UNLOCKED)}")
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
        for folder in sorted([*parent.glob(f"{TEMPORARY_PREFIX}*"), *parent.glob(f"{_UNLOCKED}*")]):
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
        held = os.fstat(descriptor)
        is_young = abs(time.time() - held.st_mtime) < _YOUNG_S
        # Folders with these names are locked soon after they are made.
        if held.st_uid != os.getuid() or (is_young and folder.name.startswith((_UNLOCKED, "."))):
            return False
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    else:
        return True
    finally:
        os.close(descriptor)


def import_file(name: str, file: Path) -> ModuleType:
    """Imports a file under that name; if it raises, the module is removed.

    Raises:
      ImportError: the file is not a Python file.
      Exception: any exception from the file.
    """
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    # Registered while it runs: dataclasses and pickles look up their module.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return module


@contextmanager
def new_file(path: Path, *, overwrite: bool = True) -> Iterator[Path]:
    """Yields an empty file next to `path` that gets its name when the block succeeds.

    The content is on disk before the rename: readers see either the old or the complete new file,
    even after a power failure. If the block fails, nothing is left.

    Args:
      path: the name, in an existing directory.
      overwrite: whether to replace an existing file; otherwise it is an error.

    Raises:
      FileExistsError: the file exists and must not be overwritten.
    """
    import tempfile  # imported late: it imports `random`, and `cbs list` only reads

    descriptor, name = tempfile.mkstemp(prefix=UNFINISHED, dir=path.parent)
    os.close(descriptor)
    temporary = Path(name)
    try:
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.chmod(0o644)  # mkstemp makes files that only their owner can read
        if overwrite:
            temporary.replace(path)
        else:
            # A rename would replace an existing file; a link fails if the name is taken.
            os.link(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def new_directory(target: Path, *, whole_with: str = "") -> Iterator[Path]:
    """Yields an empty directory next to `target` that gets its name when the block succeeds.

    If the block fails, nothing is left, and the name keeps its old content.

    Args:
      target: the name; its parent directory is created if necessary.
      whole_with: a file that only a complete directory contains. If several processes make the same
        directory, the first one wins; a directory without that file is replaced. Empty to replace
        any directory.
    """
    import tempfile

    target.parent.mkdir(parents=True, exist_ok=True)
    for left in target.parent.glob(f".{glob.escape(target.name)}.new-{'?' * 8}"):
        if _is_left(left):  # of a killed process
            shutil.rmtree(left, ignore_errors=True)
    directory = Path(tempfile.mkdtemp(prefix=f".{target.name}.new-", dir=target.parent))
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    with contextlib.suppress(OSError):  # a file system without locks
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    old = directory.with_name(f"{directory.name}.old")
    try:
        yield directory
        directory.chmod(0o755)
        for is_last in (False, False, False, True):
            try:
                directory.rename(target)
                break
            except OSError:
                if whole_with and (target / whole_with).is_file():
                    break
                if is_last:
                    raise
                shutil.rmtree(old, ignore_errors=True)
                with contextlib.suppress(FileNotFoundError):  # another process has moved it
                    target.rename(old)
    finally:
        if directory.is_dir():
            with contextlib.suppress(OSError):
                old.rename(target)
        shutil.rmtree(directory, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)
        os.close(descriptor)


def write_atomically(path: Path, content: bytes | str) -> None:
    """Writes a file atomically, creating its directory; text as UTF-8."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with new_file(path) as temporary:
        temporary.write_bytes(encodable(content).encode() if isinstance(content, str) else content)


def sha256_of(path: Path) -> str:
    """Returns the sha256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def substitute_of(path: Path, *, has_header: bool = True) -> str | None:
    """Returns what a file contains instead of its real content; None if the content may be real.

    Failed downloads leave a pointer, an error message, zeros or nothing. The result continues a
    sentence that begins with the file's name.

    Args:
      path: an existing file.
      has_header: whether files of this kind begin with a header; others may begin with zeros.
    """
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        head = file.read(_LONGEST_MESSAGE)
    if not size:
        return f"is empty; {_AGAIN}"
    if has_header and size >= _ZEROS and not any(head[:_ZEROS]):
        return f"begins with {_ZEROS} zeros, so it is incomplete; {_AGAIN}"
    for magic, name in _PACKERS:
        if head.startswith(magic):
            return f"is compressed with {name}; unpack it"
    text = head.removeprefix(b"\xef\xbb\xbf")
    for pattern, meaning in _POINTERS:
        if re.match(pattern, text, re.IGNORECASE) and b"\0" not in text[:_ZEROS]:
            return f"is {meaning}"
    if size < _LONGEST_MESSAGE and (said := _error_in_json(text)):
        return f"is an error message in JSON ({one_line(said, 80)}); {_AGAIN}"
    return None


def is_all_zeros(path: Path) -> bool:
    """Returns whether a file has at least 512 bytes, and all are zero; reads up to another one."""
    with path.open("rb") as file:
        is_zero = not any(piece.strip(b"\0") for piece in iter(lambda: file.read(2**20), b""))
        return is_zero and file.tell() >= _ZEROS


def _error_in_json(text: bytes) -> str | None:
    if not text.lstrip().startswith(b"{"):
        return None
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return None
    # Configurations have many keys, which may include an error.
    keys = ("error", "errors", "message", "detail", "error_description")
    named = [content[key] for key in keys if key in content] if len(content) <= 6 else []
    return str(named[0]) if named and "model_type" not in content else None


def link(source: Path, target: Path) -> None:
    """Links a file under a second name; without hard links, copies it with its time."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except (FileNotFoundError, FileExistsError):
        raise
    except OSError:
        shutil.copy2(source, target)
