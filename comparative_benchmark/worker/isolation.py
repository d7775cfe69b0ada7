"""Hides folders from this process for good, without root: see user_namespaces(7).

A worker runs code of a model or a plug-in, which could copy the truth, or replace it. So folders
that hold truths are covered by an empty file system in a mount namespace of the worker's own. A
second namespace within that one locks the covers: nothing in it can take them off again. Nor can
the worker reach the files through `/proc` of other processes, which belong to another user
namespace.
"""

import ctypes
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

# <linux/sched.h> and <linux/mount.h>
_CLONE_NEWNS, _CLONE_NEWUSER = 0x00020000, 0x10000000
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC = 1, 2, 4, 8
_MS_REMOUNT, _MS_BIND, _MS_REC, _MS_PRIVATE = 32, 4096, 16384, 1 << 18
_MS_RELATIME, _ST_RELATIME = 1 << 21, 4096
_GUARDED = _MS_NOSUID | _MS_NODEV | _MS_NOEXEC


def hide(folders: Mapping[str, Sequence[str]]) -> str | None:
    """Covers folders, for this process and those that it starts.

    To be called before there are threads.

    Args:
      folders: absolute paths, each with patterns of what stays visible beneath it.

    Returns:
      why the folders are still visible; None if they are hidden.
    """
    # An attempt that fails half-way could leave a process that may read nothing: a copy tries it.
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
    # This process may still stand in a folder that is covered now.
    os.chdir(Path.cwd())
    _enter_namespaces()


def _cover_folder(folder: Path, patterns: Sequence[str]) -> None:
    shown = sorted({path for pattern in patterns for path in folder.glob(pattern)})
    # What is shown is reached by descriptors while the cover is already in its place.
    descriptors = {path: os.open(path, os.O_PATH) for path in shown}
    _mount("tmpfs", str(folder), kind="tmpfs", flags=_GUARDED, data="mode=755")
    for path, descriptor in descriptors.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        source = Path(f"/proc/self/fd/{descriptor}")
        if source.is_dir():
            path.mkdir()
        else:
            path.touch()
        _mount(str(source), str(path), flags=_MS_BIND)
        os.close(descriptor)
        _mount("none", str(path), flags=_MS_REMOUNT | _MS_BIND | _MS_RDONLY | _flags_of(path))
    _mount("none", str(folder), flags=_MS_REMOUNT | _MS_BIND | _MS_RDONLY | _GUARDED)


def _flags_of(path: Path) -> int:
    """Returns the flags of a mount that a less privileged namespace may not take away."""
    found = os.statvfs(path).f_flag
    relative = _MS_RELATIME if found & _ST_RELATIME else 0
    return relative | found & (_GUARDED | os.ST_NOATIME | os.ST_NODIRATIME)


def _enter_namespaces() -> None:
    """Moves this process to new user and mount namespaces, in which it is the user it was."""
    identities = {name: _same(name) for name in ("uid_map", "gid_map")}
    process = Path(f"/proc/{os.getpid()}")

    def write_maps() -> None:
        # From outside: only there root may map all users.
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
    """Returns the map that gives each user or group that is known here its own number."""
    if os.geteuid() != 0:
        own = os.geteuid() if name == "uid_map" else os.getegid()
        return f"{own} {own} 1"
    lines = map(str.split, Path("/proc/self", name).read_text(encoding="ascii").splitlines())
    return "\n".join(f"{inside} {inside} {count}" for inside, _, count in lines)


def _in_a_copy(
    function: Callable[[], object], meanwhile: Callable[[], object] = lambda: None
) -> str | None:
    """Calls a function in a fork of this process; returns why it failed, None if it did not."""
    answer, tell = os.pipe()
    if (copy := os.fork()) == 0:
        try:
            function()
        except BaseException as error:  # this copy must not go on
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
