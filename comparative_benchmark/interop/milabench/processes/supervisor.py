"""Supervises one foreign command, and kills all processes that it started.

It runs as a script that uses only the standard library: `python -I -S supervisor.py SPEC`, where
SPEC is the number of an open file. As a subreaper (PR_SET_CHILD_SUBREAPER) it adopts orphans,
including daemons that changed their session and environment. It kills all of them when the command
ends or the parent's end of a pipe closes. It disables the network with a namespace that has only a
loopback device, and counts attempts to use it.
"""

import contextlib
import ctypes
import fcntl
import json
import os
import resource
import select
import signal
import socket
import struct
import sys
import time

_SUBREAPER, _PARENT_DEATH, _DROP_CAPABILITY = 36, 1, 24
_CAP_SYS_TIME = 25
_NEW_USER, _NEW_NET, _NEW_MOUNTS = 0x10000000, 0x40000000, 0x00020000
_BIND, _READ_ONLY, _REMOUNT, _PRIVATE, _RECURSIVE = 4096, 1, 32, 1 << 18, 16384
_SIOCSIFFLAGS, _IFF_UP = 0x8914, 1
_GRACE_S = 3.0
_PATIENCE_S = 5.0
# Count packets without a route, and to closed local ports, e.g. of a local name server.
_TRIED = {"Ip": ("OutNoRoutes",), "Udp": ("NoPorts",)}
_TRIED6 = ("Ip6OutNoRoutes", "Udp6NoPorts")


def main() -> int:
    """Runs the command; reports how it ended through the pipe named in the spec."""
    with open(int(sys.argv[1]), encoding="utf-8") as file:  # noqa: PTH123
        spec = json.load(file)
    life, report = spec["life"], spec["report"]
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_SUBREAPER, 1, 0, 0, 0)
    # Scripts must not set the clock, because that would disturb all other measurements.
    libc.prctl(_DROP_CAPABILITY, _CAP_SYS_TIME, 0, 0, 0)
    isolated = not spec["network"] and _leave_network(libc)
    _protect(libc, spec["protect"])
    for number in (life, report):
        os.set_inheritable(number, False)
    started = time.monotonic()
    child = os.fork()
    if child == 0:
        _execute(spec, libc)
    status, usage, ended_by_us = _wait(child, life)
    wall_s = time.monotonic() - started
    left = _end_all()
    ended = {
        "code": os.waitstatus_to_exitcode(status),
        "wall_s": wall_s,
        "cpu_s": usage.ru_utime + usage.ru_stime,
        "max_rss_bytes": usage.ru_maxrss * 1024,
        "switches": usage.ru_nivcsw,
        "ended_by_us": ended_by_us,
        "left": left,
        "isolated": isolated,
        "network_tries": _network_tries() if isolated else None,
    }
    with contextlib.suppress(OSError):
        os.write(report, json.dumps(ended).encode())
    return 0


def _execute(spec: "dict[str, object]", libc: ctypes.CDLL) -> None:
    """Executes the command in this process; never returns."""
    try:
        libc.prctl(_PARENT_DEATH, signal.SIGKILL, 0, 0, 0)
        os.setsid()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        if cpus := spec["cpus"]:
            os.sched_setaffinity(0, cpus)  # type: ignore[arg-type]
        os.chdir(str(spec["cwd"]))
        argv: list[str] = spec["argv"]  # type: ignore[assignment]
        environment: dict[str, str] = spec["env"]  # type: ignore[assignment]
        os.execvpe(argv[0], argv, environment)  # noqa: S606  # which shell?
    except OSError as error:
        name = error.filename or spec["argv"][0]  # type: ignore[index]
        os.write(2, f"cannot start command in {spec['cwd']}: {name}: {error.strerror}\n".encode())
    finally:
        os._exit(127)


def _wait(child: int, life: int) -> "tuple[int, resource.struct_rusage, bool]":
    """Waits for the command; ends it on the parent's request or when the parent has exited."""
    handle = os.pidfd_open(child)
    poller = select.poll()
    poller.register(handle, select.POLLIN)
    poller.register(life, select.POLLIN | select.POLLHUP)
    kill_at = None
    while True:
        patience = None if kill_at is None else max(0.0, kill_at - time.monotonic()) * 1000
        events = dict(poller.poll(patience))
        if handle in events:
            _, status, usage = os.wait4(child, 0)
            return status, usage, kill_at is not None
        if life in events and os.read(life, 1):
            # Give it time to handle SIGTERM.
            kill_at = time.monotonic() + _GRACE_S if kill_at is None else kill_at
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child, signal.SIGTERM)
            continue
        if life in events:
            poller.unregister(life)
        kill_at = time.monotonic() + _PATIENCE_S
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)


def _end_all() -> int:
    """Kills all descendants; returns how many there were."""
    seen: set[int] = set()
    until = time.monotonic() + _PATIENCE_S
    while time.monotonic() < until:
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        alive = _descendants(os.getpid())
        if not alive:
            break
        for pid in alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        seen.update(alive)
        time.sleep(0.005)
    return len(seen)


def _descendants(pid: int) -> "list[int]":
    pids: list[int] = []
    waiting = [pid]
    while waiting:
        current = waiting.pop()
        with contextlib.suppress(OSError):
            for task in os.listdir(f"/proc/{current}/task"):  # noqa: PTH208
                with open(f"/proc/{current}/task/{task}/children", encoding="ascii") as file:  # noqa: PTH123
                    children = [int(text) for text in file.read().split()]
                pids += children
                waiting += children
    return pids


def _leave_network(libc: ctypes.CDLL) -> bool:
    """Moves to a namespace without a network; returns whether that is permitted."""
    if libc.unshare(_NEW_NET) != 0:
        # A partial unshare cannot be undone, so try it in a child first.
        trial = os.fork()
        if trial == 0:
            os._exit(not _leave_user(libc))
        if os.waitpid(trial, 0)[1] != 0 or not _leave_user(libc):
            return False
    # Frameworks use the loopback device internally.
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as open_one:
        fcntl.ioctl(open_one, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", _IFF_UP))
    return True


def _leave_user(libc: ctypes.CDLL) -> bool:
    """Moves to new user, network and mount namespaces, as the same user."""
    user, group = os.getuid(), os.getgid()
    if libc.unshare(_NEW_USER | _NEW_NET | _NEW_MOUNTS) != 0:
        return False
    try:
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{user} {user} 1")
        _write("/proc/self/gid_map", f"{group} {group} 1")
    except OSError:
        return False
    return True


def _protect(libc: ctypes.CDLL, paths: "list[str]") -> None:
    """Makes files read-only for the command, if mount namespaces are permitted."""
    if not paths or (os.getuid() == 0 and libc.unshare(_NEW_MOUNTS) != 0):
        return
    if libc.mount(b"none", b"/", None, _PRIVATE | _RECURSIVE, None) != 0:
        return
    for path in paths:
        name = path.encode()
        if libc.mount(name, name, None, _BIND, None) == 0:
            libc.mount(b"none", name, None, _BIND | _REMOUNT | _READ_ONLY, None)


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:  # noqa: PTH123
        file.write(text)


def _network_tries() -> int:
    tries = 0
    with contextlib.suppress(OSError, ValueError):
        with open("/proc/self/net/snmp", encoding="ascii") as file:  # noqa: PTH123
            lines = file.read().splitlines()
        for names, values in zip(lines[::2], lines[1::2], strict=False):
            kind, _, titles = names.partition(":")
            row = dict(zip(titles.split(), values.split()[1:], strict=False))
            tries += sum(int(row.get(name, 0)) for name in _TRIED.get(kind, ()))
        with open("/proc/self/net/snmp6", encoding="ascii") as file:  # noqa: PTH123
            for line in file:
                name, value = line.split()
                tries += int(value) if name in _TRIED6 else 0
    return tries


if __name__ == "__main__":
    sys.exit(main())
