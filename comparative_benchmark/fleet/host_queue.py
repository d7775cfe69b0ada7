"""A queue of batches on one host, for machines without a scheduler.

The first batch starts a detached runner, which executes one batch at a time and ends with the
queue. It holds a lock of the host, so that no other fleet measures at the same time. The process of
a batch inherits the locks: they are free only when nothing of the batch is left.
"""

import contextlib
import fcntl
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import attrs
import msgspec

from comparative_benchmark.fleet.spool import Batch, Spool
from openxla.benchmark.files import write_atomically

# One lock for all users of the host, whose temporary folders may differ.
_HOST_LOCK = Path("/tmp/cbs-fleet-host.lock")  # noqa: S108  # opened without following links
_STOPPING_S = 20.0
# Exit codes of a shell that cannot execute a program.
_NOT_STARTED = (126, 127)
_KILLED = "the batch was killed, or the host went down"
# Largest answer with finished files.
_MOST_BYTES = 32 << 20
# Runners end a batch this long after its limit; nodes set no deadline.
_LATE_S = 5.0


@attrs.frozen(kw_only=True)
class Queued:
    """A batch in the queue.

    Attributes:
      python: interpreter, or virtual environment; None for the runner's.
      log: file for the output.
      setup: shell command that makes the environment if it is missing; None if it exists.
      node: name of this host in the fleet's file; None for its own name.
    """

    name: str
    time_limit_s: float
    python: str | None
    log: str
    setup: str | None = None
    node: str | None = None


@attrs.frozen(kw_only=True)
class HostState:
    """State of a batch.

    Attributes:
      code: exit code of a batch that has ended.
      reason: why it could not start.
      ended_at: when it ended, in seconds since 1970.
    """

    state: Literal["pending", "running", "ended", "timeout", "lost", "cancelled"]
    code: int | None = None
    reason: str = ""
    ended_at: float | None = None


class HostQueue:
    """The queue of a fleet on this host.

    Args:
      folder: the fleet's folder on this host.
    """

    def __init__(self, folder: Path) -> None:
        self._spool = Spool(folder)
        self._queue = folder / "queue" / os.uname().nodename
        self._lock_file = self._queue / "lock"

    def submit(self, batch: Batch, queued: Queued) -> None:
        """Adds a batch, and starts a runner if none is active."""
        self._spool.create()
        for name in ("pending", "running", "ended"):
            (self._queue / name).mkdir(parents=True, exist_ok=True)
        if not self._spool.batch_file(batch.name).exists():
            self._spool.write_batch(batch)
        # Names sort in the order of submission.
        position = time.time_ns()
        write_atomically(
            self._queue / "pending" / f"{position:020d} {batch.name}", msgspec.json.encode(queued)
        )
        self.start_runner()

    def start_runner(self) -> None:
        """Starts a detached runner unless one is active or the queue is empty."""
        if not self._pending() or self._is_locked():
            return
        with (self._queue / "runner.log").open("ab") as log:
            subprocess.Popen(
                [*interpreter(None), "fleet", "runner", str(self._spool.folder)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def run(self) -> None:
        """Executes batches until the queue is empty; returns at once if a runner is active."""
        # A batch may arrive after the last look at the queue, before the lock is free.
        while self._pending():
            with _locked(self._lock_file, wait=False) as lock:
                if lock is None:
                    return
                # The lock is free, so nothing of these batches is left.
                for path in self._files("running"):
                    self._end(path, path.name, HostState(state="lost", reason=_KILLED))
                with _locked(_HOST_LOCK, wait=True) as host_lock:
                    descriptors = [item for item in (lock, host_lock) if item is not None]
                    while entry := next(iter(self._pending()), None):
                        self._execute(entry, descriptors)

    def states(self, prefix: str) -> dict[str, HostState]:
        """Returns the state of all batches whose names have a prefix."""
        states: dict[str, HostState] = {}
        active = self._is_locked()
        for path in self._pending():
            states[_batch_name(path)] = HostState(state="pending")
        for path in self._files("running"):
            killed = HostState(state="lost", reason=_KILLED)
            states[path.name] = HostState(state="running") if active else killed
        for path in self._files("ended"):
            with contextlib.suppress(OSError, msgspec.DecodeError):
                state = msgspec.json.decode(path.read_bytes(), type=HostState)
                states[path.name] = attrs.evolve(state, ended_at=path.stat().st_mtime)
        if states and not active:
            self.start_runner()
        return {name: state for name, state in states.items() if name.startswith(prefix)}

    def cancel(self, names: Sequence[str]) -> None:
        """Removes batches from the queue, and ends those that run."""
        for path in self._pending():
            if (name := _batch_name(path)) in names:
                self._end(path, name, HostState(state="cancelled"))
        for path in self._files("running"):
            if path.name in names:
                self._end(path, path.name, HostState(state="cancelled"))
                with contextlib.suppress(OSError, ValueError):
                    group = int(_pid_file(path).read_text())
                    # After a crash of the machine, it may be another program's.
                    if path.name.encode() in Path(f"/proc/{group}/cmdline").read_bytes():
                        os.killpg(group, signal.SIGTERM)

    def _execute(self, entry: Path, descriptors: Sequence[int]) -> None:
        name = _batch_name(entry)
        batch_file = self._spool.batch_file(name)
        running = self._queue / "running" / name
        try:
            queued = msgspec.json.decode(entry.read_bytes(), type=Queued)
            entry.rename(running)
        except FileNotFoundError:  # cancelled
            return
        except msgspec.DecodeError:
            self._end(entry, name, HostState(state="lost", reason="the queue file is damaged"))
            return
        Path(queued.log).parent.mkdir(parents=True, exist_ok=True)
        try:
            with Path(queued.log).open("ab") as log:
                process = subprocess.Popen(
                    ["sh", "-c", batch_script(queued.python, queued.setup, batch_file)],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    pass_fds=descriptors,
                    env={**os.environ, **({"CBS_FLEET_NODE": queued.node} if queued.node else {})},
                )
        except OSError as error:
            self._end(running, name, HostState(state="lost", reason=str(error)))
            return
        _pid_file(running).write_text(str(process.pid))
        state = HostState(state="ended")
        try:
            process.wait(queued.time_limit_s + _LATE_S)
        except subprocess.TimeoutExpired:
            state = HostState(state="timeout")
            _end_group(process)
        finally:
            _pid_file(running).unlink(missing_ok=True)
        if process.returncode in _NOT_STARTED:
            state = HostState(state="lost", reason=f"interpreter cannot start; see {queued.log}")
        self._end(running, name, attrs.evolve(state, code=process.returncode))

    def _end(self, path: Path, name: str, state: HostState) -> None:
        ended = self._queue / "ended" / name
        if not ended.exists():
            write_atomically(ended, msgspec.json.encode(state))
        path.unlink(missing_ok=True)

    def _pending(self) -> list[Path]:
        return sorted(self._files("pending"))

    def _files(self, folder: str) -> list[Path]:
        try:
            paths = list((self._queue / folder).iterdir())
        except OSError:
            return []
        return [path for path in paths if path.name[0] != "." and path.suffix != ".pid"]

    def _is_locked(self) -> bool:
        with _locked(self._lock_file, wait=False) as lock:
            return lock is None


def interpreter(environment: str | None) -> list[str]:
    """Returns the start of a command line of `cbs` in an environment; None for this one."""
    python = sys.executable
    if environment is not None:
        path = Path(environment).expanduser()
        python = str(path / "bin" / "python" if path.is_dir() else path)
    return [python, "-P", "-m", "comparative_benchmark"]


def batch_script(environment: str | None, setup: str | None, file: Path) -> str:
    """Returns the shell script of a batch.

    It runs on the node, where the environment is a folder or an interpreter; the submitter's
    machine may have neither. The first batch makes the environment, under a lock, if it is missing.

    Args:
      environment: virtual environment or interpreter; None for the submitter's.
      setup: shell command that makes the environment; None if it exists.
      file: the batch's file.
    """
    place = str(Path(environment or sys.executable).expanduser())
    lines = ["#!/bin/sh", f"python={shlex.quote(place)}"]
    if setup is not None:
        making = f'test -e "$0.made" || {{ {setup}\n}} && touch "$0.made"'
        lines.append('mkdir -p "$(dirname "$python")" || exit')
        lines.append(f'flock "$python.lock" sh -c {shlex.quote(making)} "$python" || exit')
    lines.append('if [ -d "$python" ]; then python="$python/bin/python"; fi')
    command = f"-P -m comparative_benchmark fleet node {shlex.quote(str(file))}"
    return "\n".join([*lines, f'exec "$python" {command}']) + "\n"


def _batch_name(pending: Path) -> str:
    return pending.name.partition(" ")[2]


def _pid_file(running: Path) -> Path:
    return running.with_name(f"{running.name}.pid")


def _end_group(process: "subprocess.Popen[bytes]") -> None:
    """Ends a process, and all that it started, even if they ignore SIGTERM."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_STOPPING_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@contextlib.contextmanager
def _locked(path: Path, *, wait: bool) -> Iterator[int | None]:
    """Yields the descriptor of a locked file; None if it is locked already."""
    flags = os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, flags | os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        # The umask may be 077, but other users lock the same file.
        os.fchmod(descriptor, 0o666)
    except (FileExistsError, PermissionError):
        # Another user's file may be read-only. Only NFS needs a writable one for a lock.
        access = os.O_RDWR if os.access(path, os.W_OK) else os.O_RDONLY
        descriptor = os.open(path, flags | access)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        os.close(descriptor)
        yield None
        return
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def answer(request: Any) -> Any:
    """Answers one request to the agent on a host, as JSON values; see `engines.hosts.SshEngine`.

    Raises:
      KeyError, ValueError: the request is malformed.
    """
    from comparative_benchmark.fleet.features import this_node

    folder = Path(request["folder"]).expanduser()
    queue = HostQueue(folder)
    match request["verb"]:
        case "node":
            node = this_node()
            return {"features": sorted(node.features), "properties": dict(node.properties)}
        case "submit":
            batch = msgspec.convert(request["batch"], Batch)
            queued = Queued(
                name=batch.name,
                log=str(folder / "logs" / f"{batch.name}.log"),
                node=request.get("node"),
                **{key: request[key] for key in ("time_limit_s", "python", "setup")},
            )
            queue.submit(batch, queued)
            return {"id": str(os.getpid())}
        case "poll":
            return msgspec.to_builtins(queue.states(request["prefix"]))
        case "cancel":
            queue.cancel(request["names"])
            return {}
        case "fetch":
            return _new_files(folder, set(request["have"]))
        case other:
            raise ValueError(f"unknown verb {other!r}")


def _new_files(folder: Path, have: set[str]) -> dict[str, str]:
    """Returns the content of finished files that the submitter lacks, by their paths.

    The submitter asks again for the files that one answer has no room for.
    """
    files: dict[str, str] = {}
    size = 0
    for kind in ("results", "ends"):
        for path in sorted((folder / kind).glob("*.json")):
            name = f"{kind}/{path.name}"
            if name in have or path.name.startswith("."):
                continue
            content = path.read_text(encoding="utf-8", errors="replace")
            size += len(content)
            if files and size > _MOST_BYTES:
                return files
            files[name] = content
    return files
