"""Other processes: their CPU time, their memory, and daemons that outlive workers."""

import contextlib
import ctypes
import os
import signal
import subprocess
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import psutil

from comparative_benchmark.analysis.machine import conditions
from comparative_benchmark.analysis.machine.gpu_state import SESSION_VARIABLE
from comparative_benchmark.backends.host_settings import free_bytes

OBSERVED_S = 1.0
# Share of one CPU; see `conditions` for why 5 %.
_BUSY_LIMIT = 0.05

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
# Reserved for the parent and the system, so that the kernel's OOM killer is not needed.
_RESERVE_BYTES = 1 << 30

_PR_SET_CHILD_SUBREAPER = 36  # <linux/prctl.h>
_MOST_ROUNDS = 100


@attrs.frozen(kw_only=True)
class Observed:
    """CPU use of other processes during a second in which this process slept.

    Attributes:
      busiest: pid, name and share of one CPU of the busiest processes, on all CPUs.
    """

    cpus: tuple[int, ...] = ()
    conditions: conditions.Conditions
    busiest: tuple[tuple[int, str, float], ...]

    @property
    def rows(self) -> list[str]:
        """The busiest processes as text, e.g. `cc1plus (pid 42) 98% of a CPU`."""
        return [f"{name} (pid {pid}) {used:.0%} of a CPU" for pid, name, used in self.busiest]


def observe(root: Path = conditions.ROOT, seconds: float = OBSERVED_S) -> Observed:
    """Sleeps, and returns the activity of others meanwhile."""
    earlier, before = _cpu_times(), conditions.take(root)
    time.sleep(seconds)
    after, later = conditions.take(root), _cpu_times()
    seconds = (after.time_ns - before.time_ns) / 1e9
    used = [
        (pid, name, (total - earlier.get(pid, ("", 0.0))[1]) / seconds)
        for pid, (name, total) in later.items()
        if pid != os.getpid()
    ]
    used.sort(key=lambda row: -row[2])
    return Observed(
        # This process has no busy threads: all CPUs should be idle.
        conditions=conditions.between(
            before,
            after,
            own_cpu_ms=(after.cpu_ns - before.cpu_ns) / 1e6,
            wall_ms=seconds * 1e3,
            threads=len(before.cpus),
        ),
        cpus=tuple(sorted(before.cpus)),
        busiest=tuple(row for row in used[:3] if row[2] > _BUSY_LIMIT),
    )


def _cpu_times() -> dict[int, tuple[str, float]]:
    """Returns name and CPU seconds of each visible process."""
    by_pid = {}
    for process in psutil.process_iter(["name", "cpu_times"]):
        times = process.info["cpu_times"]
        if times is not None:
            by_pid[process.pid] = (process.info["name"] or "?", times.user + times.system)
    return by_pid


def default_limit_bytes() -> int:
    """Returns the limit for a worker: memory available now, container included, less 1 GiB."""
    return max(free_bytes() - _RESERVE_BYTES, _RESERVE_BYTES)


def resident_bytes(pid: int) -> int:
    """Returns the resident memory of a process and its descendants; 0 if it has ended."""
    total = 0
    waiting = [pid]
    while waiting:
        current = waiting.pop()
        try:
            pages = int(Path(f"/proc/{current}/statm").read_text(encoding="ascii").split()[1])
            children = Path(f"/proc/{current}/task/{current}/children").read_text(encoding="ascii")
        except (OSError, IndexError, ValueError):
            continue
        total += pages * _PAGE_BYTES
        waiting += map(int, children.split())
    return total


def oom_kill_count() -> int:
    """Returns how many processes the kernel's OOM killer has killed since the system started."""
    with contextlib.suppress(OSError, ValueError):
        for line in Path("/proc/vmstat").read_text(encoding="ascii").splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0


def kill_marked(variable: str, value: str) -> None:
    """Kills every process whose environment holds `variable=value`.

    It finds descendants that left the process group (daemons, `setsid`), which no signal to the
    group reaches.
    """
    mark = f"{variable}={value}".encode()
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark in (entry / "environ").read_bytes().split(b"\0"):
                os.kill(int(entry.name), signal.SIGKILL)


def run_supervised(
    command: Sequence[str],
    *,
    env: Mapping[str, str],
    timeout_s: float | None = None,
    grace_s: float = 0.0,
    **keywords: Any,
) -> int | None:
    """Runs a foreign command in a new session, and kills every process that it leaves behind.

    Args:
      command: the command line.
      env: its environment variables.
      timeout_s: time after which it is ended.
      grace_s: time to exit after SIGTERM, before it is killed.
      keywords: further arguments of `subprocess.Popen`.

    Returns:
      The exit code, negative for a signal; None if it took too long.
    """
    mark = uuid.uuid4().hex
    with _lock:
        process = subprocess.Popen(
            command, env={**env, SESSION_VARIABLE: mark}, start_new_session=True, **keywords
        )
        _workers.add(process.pid)
    try:
        return process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        return None
    finally:
        if grace_s and process.poll() is None:
            _signal_group(process.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(grace_s)
        # The command may have exited before the processes that it started.
        _signal_group(process.pid, signal.SIGKILL)
        process.wait()
        kill_marked(SESSION_VARIABLE, mark)
        worker_ended(process.pid)


def _signal_group(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


# Whether this process adopts orphans.
_adopting = False
# Process groups of running workers.
_workers: set[int] = set()
_lock = threading.Lock()


@contextlib.contextmanager
def adopting() -> Iterator[None]:
    """Adopts orphans during a command; not in a notebook, where orphans may belong to others."""
    global _adopting  # noqa: PLW0603  # it is a property of the process
    with contextlib.suppress(OSError, AttributeError):
        _adopting = ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1) == 0
    try:
        yield
    finally:
        if _adopting:
            _adopting = False
            ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 0)


def start_worker(*arguments: Any, **keywords: Any) -> "subprocess.Popen[bytes]":
    """Starts a worker in a new process group, so that Ctrl-C does not reach it.

    Takes the arguments of `subprocess.Popen`.
    """
    with _lock:
        worker = subprocess.Popen(*arguments, process_group=0, **keywords)
        _workers.add(worker.pid)
    return worker


def worker_ended(pid: int) -> None:
    """Kills the orphans of a worker that has ended, and their children."""
    with _lock:
        _workers.discard(pid)
        # Killing an orphan turns its children into orphans.
        for _ in range(_MOST_ROUNDS if _adopting else 0):
            orphans = [pid for pid in _children() if _is_orphan(pid)]
            if not orphans:
                return
            for orphan in orphans:
                with contextlib.suppress(OSError):
                    os.kill(orphan, signal.SIGKILL)
                    os.waitpid(orphan, 0)


def _children() -> list[int]:
    pids: list[int] = []
    with contextlib.suppress(OSError):
        for task in Path("/proc/self/task").iterdir():
            with contextlib.suppress(OSError, ValueError):
                pids += map(int, (task / "children").read_text(encoding="ascii").split())
    return pids


def _is_orphan(pid: int) -> bool:
    """Returns whether another process started a child: ours are workers, or in our group."""
    with contextlib.suppress(OSError):
        return os.getpgid(pid) not in {os.getpgid(0), *_workers}
    return False
