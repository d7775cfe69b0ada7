"""Files and directories that appear whole or not at all; digests and second names of files."""

import hashlib
import importlib.util
import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from openxla.benchmark.text import encodable, one_line


def import_file(name: str, file: Path) -> ModuleType:
    """Imports a file under that name; one that raises leaves nothing behind.

    Raises:
      ImportError: it is not a Python file.
      Exception: what the file raises.
    """
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    # There while it is executed: dataclasses and pickles look for their module.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return module


UNFINISHED = ".unfinished-"
_AGAIN = "download it again"
# How pointers and error messages begin.
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
        f"an error message of a server; {_AGAIN}",
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


def substitute_of(path: Path) -> str | None:
    """Returns what a file holds instead of its content; None if it may be the content.

    Downloads fail in these ways: they leave a pointer, an error message, zeros or nothing. The
    result continues a sentence that begins with the file's name.
    """
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        head = file.read(_LONGEST_MESSAGE)
    if not size:
        return f"is empty; {_AGAIN}"
    if size >= _ZEROS and not any(head[:_ZEROS]):
        return f"begins with {_ZEROS} zeros, so it is not complete; {_AGAIN}"
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


def _error_in_json(text: bytes) -> str | None:
    if not text.lstrip().startswith(b"{"):
        return None
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return None
    # Configurations have many keys, and may name an error among them.
    keys = ("error", "errors", "message", "detail", "error_description")
    named = [content[key] for key in keys if key in content] if len(content) <= 6 else []
    return str(named[0]) if named and "model_type" not in content else None


def link(source: Path, target: Path) -> None:
    """Gives a file a second name, or copies it, with its time, where there are no hard links."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except (FileNotFoundError, FileExistsError):
        raise
    except OSError:
        shutil.copy2(source, target)
