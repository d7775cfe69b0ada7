"""Hides folders from this process permanently, without root: see user_namespaces(7).

A worker runs code of models and plug-ins, which could copy or replace the truth. Therefore it
enters a mount namespace and covers the folders with an empty file system. A second, nested
namespace locks the covers, so that the worker cannot remove them. It cannot reach the files through
`/proc` of other processes either, because those belong to another user namespace.
"""

import ctypes
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from openxla.benchmark import installation

_OURS = tuple(
    f"{place}{os.sep}" for place in (Path(__file__).parents[2], Path(installation.__file__).parent)
)
# The standard library ends these forks itself; tracing would only slow them down.
_ENDS_ITSELF = "multiprocessing.popen_fork"


def end_where_we_go_on() -> None:
    """Makes future forks of this process exit when control returns to our code."""
    os.register_at_fork(after_in_child=_in_copy)


def _in_copy() -> None:
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001  # who called fork()
    while frame is not None and not frame.f_code.co_filename.startswith(_OURS):
        if frame.f_globals.get("__name__") == _ENDS_ITSELF:
            return
        frame = frame.f_back
    if frame is None:
        return
    ours = frame

    def follow(at: FrameType, event: str, _: Any) -> None:
        if at is ours or (event == "return" and at.f_back is ours):
            os._exit(0)

    sys.setprofile(follow)


# <linux/sched.h> and <linux/mount.h>
_CLONE_NEWNS, _CLONE_NEWUSER = 0x00020000, 0x10000000
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC = 1, 2, 4, 8
_MS_REMOUNT, _MS_BIND, _MS_REC, _MS_PRIVATE = 32, 4096, 16384, 1 << 18
_MS_RELATIME, _ST_RELATIME = 1 << 21, 4096
_GUARDED = _MS_NOSUID | _MS_NODEV | _MS_NOEXEC


def hide(folders: Mapping[str, Sequence[str]]) -> str | None:
    """Hides folders from this process and its children.

    Call this before starting threads.

    Args:
      folders: absolute paths, each with patterns of files and folders below it that remain visible.

    Returns:
      The reason if the folders are still visible; None if they are hidden.
    """
    # A partial attempt could leave a process without permissions, so try it in a fork first.
    reason = _in_a_copy(lambda: _cover(folders))
    if reason is None:
        _cover(folders)
    return reason


def _cover(folders: Mapping[str, Sequence[str]]) -> None:
    _enter_namespaces()
    _mount("none", "/", flags=_MS_REC | _MS_PRIVATE)
    for folder, patterns in folders.items():
        if Path(folder).is_dir():
            _cover_folder(Path(folder).resolve(), patterns)
    # The working directory may be in a covered folder.
    os.chdir(Path.cwd())
    _enter_namespaces()


def _cover_folder(folder: Path, patterns: Sequence[str]) -> None:
    shown = sorted({path for pattern in patterns for path in folder.glob(pattern)})
    # The descriptor gives access to the files under the cover.
    descriptor = os.open(folder, os.O_PATH)
    _mount("tmpfs", str(folder), kind="tmpfs", flags=_GUARDED, data="mode=755")
    for path in shown:
        path.parent.mkdir(parents=True, exist_ok=True)
        source = Path(f"/proc/self/fd/{descriptor}", path.relative_to(folder))
        if source.is_dir():
            path.mkdir()
        else:
            path.touch()
        _mount(str(source), str(path), flags=_MS_BIND)
        _mount("none", str(path), flags=_MS_REMOUNT | _MS_BIND | _MS_RDONLY | _flags_of(path))
    os.close(descriptor)
    _mount("none", str(folder), flags=_MS_REMOUNT | _MS_BIND | _MS_RDONLY | _GUARDED)


def _flags_of(path: Path) -> int:
    """Returns the mount flags that a less privileged namespace must keep."""
    flags = os.statvfs(path).f_flag
    relative = _MS_RELATIME if flags & _ST_RELATIME else 0
    return relative | flags & (_GUARDED | os.ST_NOATIME | os.ST_NODIRATIME)


def _enter_namespaces() -> None:
    """Moves this process to new user and mount namespaces; its user and group stay the same."""
    identities = {name: _same(name) for name in ("uid_map", "gid_map")}
    process = Path(f"/proc/{os.getpid()}")

    def write_maps() -> None:
        # Only from outside the namespace may root map all users.
        os.read(entered, 1)
        if os.geteuid() != 0:
            (process / "setgroups").write_text("deny", encoding="ascii")
        for name, identity in identities.items():
            (process / name).write_text(identity, encoding="ascii")

    def unshare() -> None:
        try:
            _call("unshare", _CLONE_NEWUSER | _CLONE_NEWNS)
        finally:
            os.write(enter, b"\0")

    entered, enter = os.pipe()
    try:
        reason = _in_a_copy(write_maps, meanwhile=unshare)
    finally:
        os.close(entered)
        os.close(enter)
    if reason is not None:
        raise OSError(reason)


def _same(name: str) -> str:
    """Returns a map of users or groups in which each keeps its ID."""
    if os.geteuid() != 0:
        own = os.geteuid() if name == "uid_map" else os.getegid()
        return f"{own} {own} 1"
    lines = map(str.split, Path("/proc/self", name).read_text(encoding="ascii").splitlines())
    return "\n".join(f"{inside} {inside} {count}" for inside, _, count in lines)


def _in_a_copy(
    function: Callable[[], object], meanwhile: Callable[[], object] = lambda: None
) -> str | None:
    """Calls a function in a fork of this process; returns the error, or None on success."""
    answer, tell = os.pipe()
    if (copy := os.fork()) == 0:
        try:
            function()
        except BaseException as error:  # the fork must end here
            os.write(tell, (str(error) or repr(error)).encode()[:1000])
        finally:
            os._exit(0)
    os.close(tell)
    try:
        meanwhile()
        return os.read(answer, 1000).decode() or None
    finally:
        os.close(answer)
        os.waitpid(copy, 0)


def _mount(source: str, target: str, *, flags: int, kind: str = "", data: str = "") -> None:
    texts = [os.fsencode(text) for text in (source, target, kind)]
    _call("mount", *texts, ctypes.c_ulong(flags), os.fsencode(data))


def _call(name: str, *arguments: object) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
