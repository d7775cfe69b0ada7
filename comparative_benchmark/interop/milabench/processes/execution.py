"""Runs foreign commands simultaneously and reads their events; no process is left behind.

The parent only waits: scripts measure their own rates and send them as events, so the pipe does not
affect timings. Every process carries a mark in its environment; when all keepers have ended,
processes that still have the mark are killed.
"""

import contextlib
import os
import selectors
import shutil
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from comparative_benchmark.analysis.machine import other_processes
from comparative_benchmark.analysis.machine.gpu_state import SESSION_VARIABLE
from comparative_benchmark.interop.milabench.processes.kept import (
    CommandLine,
    Ended,
    KeptCommand,
    Limits,
)
from comparative_benchmark.interop.milabench.processes.observed import Observed

_LOOK_S = 0.5
_PIECE = 1 << 16
_AFTER_END_S = 1.0
# Time that a script may continue after it has reported all rates it announced.
_AFTER_LAST_RATE_S = 5.0

Listener = Callable[[str, Observed], None]


def run(
    commands: Sequence[CommandLine],
    *,
    limits: Limits,
    log_dir: Path,
    listen: Listener = lambda _, __: None,
    echo: bool = False,
    pass_fds: Sequence[int] = (),
    also: Mapping[int, Callable[[bytes], None]] = MappingProxyType({}),
) -> list[Ended]:
    """Runs commands simultaneously; returns how each ended, in order.

    Args:
      commands: the commands to run.
      limits: limits for each command.
      log_dir: folder for their output.
      listen: called with the tag of a process that has reported events.
      echo: whether their output is also shown.
      pass_fds: pipe ends for the commands to inherit; closed here once the commands have started.
      also: further pipe ends to read, each with the function that receives the data.
    """
    mark = uuid.uuid4().hex
    log_dir.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        # On any exit, the keepers' pipes close first; then kill whatever survived them.
        stack.callback(other_processes.kill_marked, SESSION_VARIABLE, mark)
        runs = [
            stack.enter_context(
                KeptCommand(
                    command,
                    mark=mark,
                    limits=limits,
                    log_dir=log_dir,
                    echo=echo,
                    pass_fds=pass_fds,
                )
            )
            for command in commands
        ]
        for number in pass_fds:
            os.close(number)
        _Watch(runs, limits, listen, also).until_all_ended()
        return [run.ended for run in runs]


class _Watch:
    """Reads from all commands, and watches time, memory and disk, until the last has ended."""

    def __init__(
        self,
        runs: Sequence[KeptCommand],
        limits: Limits,
        listen: Listener,
        also: Mapping[int, Callable[[bytes], None]],
    ) -> None:
        self._runs = runs
        self._also = also
        self._limits = limits
        self._listen = listen
        self._selector = selectors.DefaultSelector()
        self._open: dict[int, tuple[KeptCommand, Callable[[bytes], None]]] = {}
        for run in runs:
            for number, take in run.pipes.items():
                os.set_blocking(number, False)
                self._open[number] = (run, take)
                self._selector.register(number, selectors.EVENT_READ)
        for number in also:
            self._selector.register(number, selectors.EVENT_READ)
        self._until = time.monotonic() + limits.duration_s
        self._gone: dict[int, float] = {}
        self._all_told: dict[int, float] = {}

    def until_all_ended(self) -> None:
        next_look = time.monotonic() + _LOOK_S / 5
        with self._selector:
            while not all(run.over for run in self._runs):
                now = time.monotonic()
                for key, _ in self._selector.select(max(0.0, min(next_look, self._until) - now)):
                    self._read(key.fd)
                now = time.monotonic()
                if now >= next_look:
                    next_look = now + _LOOK_S
                    self._look()
                if now >= self._until:
                    self._until = now + 3600.0
                    for run in self._runs:
                        reason = f"it took longer than {self._limits.duration_s:g} s"
                        run.end(reason, timed_out=True)
                self._finish(now)

    def _read(self, number: int) -> None:
        if number in self._also:
            piece = os.read(number, _PIECE)
            self._also[number](piece)
            if not piece:
                self._selector.unregister(number)
            return
        run, take = self._open[number]
        try:
            piece = os.read(number, _PIECE)
        except BlockingIOError:
            return
        if not piece:
            self._close(number)
            return
        before = run.ended.observed.events
        take(piece)
        observed = run.ended.observed
        if observed.stop_asked and not run.ended.stopped:
            run.ended.stopped = True
            run.end(None)
        if observed.events != before:
            self._listen(run.ended.tag, observed)

    def _close(self, number: int) -> None:
        self._selector.unregister(number)
        del self._open[number]

    def _look(self) -> None:
        limits = self._limits
        full = shutil.disk_usage(limits.disk).free < limits.disk_reserve_bytes
        now = time.monotonic()
        for run in self._runs:
            if not run.over:
                run.look_at_memory()
                if run.ended.observed.all_told and not run.ended.stopped:
                    since = self._all_told.setdefault(id(run), now)
                    if now - since >= _AFTER_LAST_RATE_S:
                        # Some of milabench's own scripts loop for 10 000 epochs.
                        run.ended.stopped = True
                        run.end(None)
                if full:
                    mib = limits.disk_reserve_bytes >> 20
                    run.end(f"less than {mib} MiB of disk space was left in {limits.disk}")

    def _finish(self, now: float) -> None:
        """Finishes commands whose keeper has ended, once their pipes close or after a delay."""
        for run in self._runs:
            if run.over or run.process.poll() is None:
                continue
            since = self._gone.setdefault(id(run), now)
            left = [number for number, (owner, _) in self._open.items() if owner is run]
            if left and now - since < _AFTER_END_S:
                continue
            for number in left:
                self._close(number)
            run.finish()
