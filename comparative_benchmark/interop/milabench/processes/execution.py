"""Runs foreign commands simultaneously and reads their events; no process is left behind.

The parent only waits: scripts measure their own rates and send them as events, so the pipe does not
affect timings. Each command has a supervisor (see supervisor.py), which ends everything that the
command started when the parent closes one pipe. Three other pipes carry output and events, and a
fourth reports how the command ended. Every process carries a mark in its environment; when all
supervisors have ended, processes that still have the mark are killed.
"""

import contextlib
import json
import os
import re
import selectors
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

import attrs

from comparative_benchmark.analysis.machine import other_processes, worker_settings
from comparative_benchmark.analysis.machine.gpu_state import SESSION_VARIABLE
from comparative_benchmark.interop.milabench.processes import supervisor
from comparative_benchmark.interop.milabench.processes.observed import (
    EventLines,
    Observed,
    SmuggledEvents,
)
from comparative_benchmark.results import results_file
from comparative_benchmark.results.results_file import ResultsFileError
from openxla.benchmark import bounded
from openxla.benchmark.files import write_atomically

# Below this, all commands are ended: a full disk would lose the results of the others.
_DISK_RESERVE_BYTES, _DISK_RESERVE = 256 * 2**20, 0.05

# Further output is dropped; the log contains a note.
LOG_LIMIT_BYTES = 16 * 2**20
# A line, rules, and a traceback up to the exception, which is not indented.
_VOIRS_ERROR = re.compile(
    rb"voir: An error occurred[^\n]*\n=+\nTraceback[^\n]*\n(?:[ \t][^\n]*\n|\n)*([^\s][^\n]*)"
)

_LOOK_S = 0.5
_PIECE = 1 << 16
_AFTER_END_S = 1.0
# Time that a script may continue after it has reported all rates it announced.
_AFTER_LAST_RATE_S = 5.0

Listener = Callable[[str, Observed], None]


@attrs.frozen(kw_only=True)
class CommandLine:
    """A command to run.

    Attributes:
      argv, cwd, env: as for `subprocess`; `env` is complete.
      use_stdout: whether it sends events in escape sequences of its output, which is always parsed.
      tag: name of the process in logs and results.
      cpus: CPUs on which it may run; empty for all.
    """

    argv: tuple[str, ...]
    cwd: str
    env: Mapping[str, str]
    tag: str
    use_stdout: bool = False
    cpus: tuple[int, ...] = ()
    devices: tuple[str, ...] = ()


@attrs.define(kw_only=True)
class Ended:
    """How a command ended.

    Attributes:
      code: exit code; negative for a signal; None if its supervisor was killed.
      reason: why we ended it; None if it ended by itself.
      timed_out: whether we ended it because it took too long.
      stopped: whether it was stopped at its own request, as by an early stop.
      left: number of processes that it left behind, which were killed.
      isolated: whether the network was disabled; `network_tries` counts attempts to use it.
      instrument_error: error in a voirfile; voir continued without reporting rates.
    """

    tag: str
    observed: Observed
    log_file: Path
    code: int | None = None
    reason: str | None = None
    timed_out: bool = False
    stopped: bool = False
    wall_s: float = 0.0
    cpu_s: float = 0.0
    peak_memory_bytes: int = 0
    involuntary_switches: int = 0
    left: int = 0
    isolated: bool = False
    network_tries: int | None = None
    last_words: str = ""
    instrument_error: str = ""
    devices: tuple[str, ...] = ()
    cpus: tuple[int, ...] = ()

    @property
    def ending(self) -> str:
        """Exit code or signal, as text."""
        if self.code is None:
            return "its supervisor was killed"
        return bounded.exit_description(self.code)


@attrs.frozen(kw_only=True)
class Limits:
    """Resource limits of commands.

    Attributes:
      duration_s: time after which they are ended.
      network: whether they may use the network.
      disk: folder on the disk that must keep `disk_reserve_bytes` free.
      protect: files made read-only for the commands, if the system permits that.
    """

    duration_s: float
    network: bool
    disk: Path
    disk_reserve_bytes: int = 0
    protect: tuple[str, ...] = ()


def disk_reserve_bytes(disk: Path) -> int:
    """Returns the disk space that must stay free: 256 MiB, or 5 % of a small disk."""
    return min(_DISK_RESERVE_BYTES, int(shutil.disk_usage(disk).total * _DISK_RESERVE))


def restored(path: Path, before: bytes) -> bool:
    """Restores a results file if records are missing from it; returns whether it was restored.

    Records that other commands have added do not count as damage.
    """
    wanted = results_file.decode_document(before, str(path))
    try:
        content = path.read_bytes()
        if content == before:
            return False
        now = results_file.decode_document(content, str(path))
    except (OSError, ResultsFileError):
        pass
    else:
        if set(_texts(wanted.runs)) <= set(_texts(now.runs)) and set(
            _texts(wanted.benchmarks)
        ) <= set(_texts(now.benchmarks)):
            return False
    write_atomically(path, before)
    return True


def _texts(records: Iterable[object]) -> Iterable[bytes]:
    return map(results_file.encode, records)


class SupervisedCommand:
    """A running command, started by the constructor; leaving the context ends it."""

    def __init__(
        self,
        command: CommandLine,
        *,
        mark: str,
        limits: Limits,
        log_dir: Path,
        echo: bool,
        pass_fds: Sequence[int],
    ) -> None:
        self.ended = Ended(
            tag=command.tag,
            observed=Observed(),
            log_file=log_dir / f"{command.tag}.log",
            devices=command.devices,
            cpus=command.cpus,
        )
        self.over = False
        self._echo = echo
        self._lines, self._smuggled = EventLines(), SmuggledEvents()
        self._status = b""
        self._logged = 0
        self._tail = b""
        self._log = self.ended.log_file.open("wb")
        life_read, self._life = os.pipe()
        report, report_write = os.pipe()
        data, data_write = os.pipe()
        out, out_write = os.pipe()
        err, err_write = os.pipe()
        self.pipes: dict[int, Callable[[bytes], None]] = {
            data: self._take_data,
            out: self._take_output,
            err: self._write,
            report: self._take_status,
        }
        env = {**command.env, SESSION_VARIABLE: mark, "DATA_FD": str(data_write)}
        if not limits.network:
            env |= worker_settings.OFFLINE_VARIABLES
        spec = {
            "argv": command.argv,
            "cwd": command.cwd,
            "env": env,
            "cpus": command.cpus,
            "network": limits.network,
            "protect": limits.protect,
            "life": life_read,
            "report": report_write,
        }
        theirs = (life_read, report_write, data_write, out_write, err_write)
        try:
            # Not as an argument: every user can read those, and their length is limited.
            with os.fdopen(os.memfd_create("spec"), "w+b") as file:
                file.write(json.dumps(spec).encode())
                file.seek(0)
                self.process = subprocess.Popen(
                    [sys.executable, "-I", "-S", supervisor.__file__, str(file.fileno())],
                    stdin=subprocess.DEVNULL,
                    stdout=out_write,
                    stderr=err_write,
                    pass_fds=(file.fileno(), life_read, report_write, data_write, *pass_fds),
                    env={SESSION_VARIABLE: mark, "PATH": os.defpath},
                    start_new_session=True,  # Ctrl-C reaches only the parent, which then ends this
                )
        finally:
            for number in theirs:
                os.close(number)
        self._life_open = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # When this pipe closes, the supervisor ends everything that the command started.
        self._close_life()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=10)
        self.process.kill()
        self.process.wait()
        for number in self.pipes:
            os.close(number)
        self._log.close()

    def end(self, reason: str | None, *, timed_out: bool = False) -> None:
        """Asks the supervisor to end the command, with SIGTERM first."""
        if not self.ended.reason:
            self.ended.reason, self.ended.timed_out = reason, timed_out
        if self._life_open:
            with contextlib.suppress(BrokenPipeError):
                os.write(self._life, b"t")

    def _close_life(self) -> None:
        if self._life_open:
            self._life_open = False
            os.close(self._life)

    def look_at_memory(self) -> None:
        """Updates the peak memory of the command and all its children."""
        now = sum(map(other_processes.resident_bytes, _children(self.process.pid)))
        self.ended.peak_memory_bytes = max(self.ended.peak_memory_bytes, now)

    def finish(self) -> None:
        """Records how the command ended, once all its output has been read."""
        self.over = True
        self._lines.close()
        self._write(self._smuggled.close())
        ended = self.ended
        if garbage := self._lines.garbage + self._smuggled.garbage:
            ended.observed.oddities["invalid events"] += garbage
        ended.last_words = _last_words(self._tail)
        if not self._status:
            ended.reason = ended.reason or "the supervisor process was killed"
            return
        status: dict[str, Any] = json.loads(self._status)
        ended.code = status["code"]
        ended.wall_s, ended.cpu_s = status["wall_s"], status["cpu_s"]
        ended.involuntary_switches = status["switches"]
        ended.peak_memory_bytes = max(ended.peak_memory_bytes, status["max_rss_bytes"])
        ended.left, ended.isolated = status["left"], status["isolated"]
        ended.network_tries = status["network_tries"]
        self._log.flush()
        if not ended.observed.rates:
            ended.instrument_error = _instrument_error(ended.log_file)

    def _take_data(self, piece: bytes) -> None:
        for event in self._lines.feed(piece):
            self.ended.observed.take(event)

    def _take_output(self, piece: bytes) -> None:
        text, events = self._smuggled.feed(piece)
        for event in events:
            self.ended.observed.take(event)
        self._write(text)

    def _take_status(self, piece: bytes) -> None:
        self._status += piece

    def _write(self, text: bytes) -> None:
        if not text:
            return
        self._tail = (self._tail + text)[-4000:]
        if self._logged < LOG_LIMIT_BYTES:
            self._logged += len(text)
            self._log.write(text)
            if self._logged >= LOG_LIMIT_BYTES:
                self._log.write(b"\n[more than 16 MiB: the rest is left out]\n")
        if self._echo:
            sys.stdout.write(text.decode(errors="replace"))
            sys.stdout.flush()


def _children(pid: int) -> list[int]:
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
    except OSError:
        return []
    return list(map(int, text.split()))


def _instrument_error(log: Path) -> str:
    """Returns the error in a voirfile, which voir only prints before it runs the script."""
    match = _VOIRS_ERROR.search(log.read_bytes())
    return match[1].decode(errors="replace").strip()[:300] if match else ""


def _last_words(tail: bytes) -> str:
    lines = [line.strip() for line in tail.decode(errors="replace").splitlines() if line.strip()]
    # The last line of a traceback is the exception.
    return lines[-1][:300] if lines else ""


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
        # On any exit, the supervisors' pipes close first; then kill whatever survived them.
        stack.callback(other_processes.kill_marked, SESSION_VARIABLE, mark)
        runs = [
            stack.enter_context(
                SupervisedCommand(
                    command, mark=mark, limits=limits, log_dir=log_dir, echo=echo, pass_fds=pass_fds
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
        runs: Sequence[SupervisedCommand],
        limits: Limits,
        listen: Listener,
        also: Mapping[int, Callable[[bytes], None]],
    ) -> None:
        self._runs = runs
        self._also = also
        self._limits = limits
        self._listen = listen
        self._selector = selectors.DefaultSelector()
        self._open: dict[int, tuple[SupervisedCommand, Callable[[bytes], None]]] = {}
        for run in runs:
            for number, take in run.pipes.items():
                os.set_blocking(number, False)
                self._open[number] = (run, take)
                self._selector.register(number, selectors.EVENT_READ)
        for number in also:
            self._selector.register(number, selectors.EVENT_READ)
        self._until = time.monotonic() + limits.duration_s
        self._gone: dict[int, float] = {}
        self._complete_since: dict[int, float] = {}

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
                    self._poll()
                if now >= self._until:
                    self._until = now + 3600.0
                    for run in (run for run in self._runs if not run.over):
                        reason = f"took longer than {self._limits.duration_s:g} s"
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

    def _poll(self) -> None:
        limits = self._limits
        full = shutil.disk_usage(limits.disk).free < limits.disk_reserve_bytes
        now = time.monotonic()
        for run in self._runs:
            if not run.over:
                run.look_at_memory()
                if run.ended.observed.is_complete and not run.ended.stopped:
                    since = self._complete_since.setdefault(id(run), now)
                    if now - since >= _AFTER_LAST_RATE_S:
                        # Some of milabench's own scripts loop for 10 000 epochs.
                        run.ended.stopped = True
                        run.end(None)
                if full:
                    mib = limits.disk_reserve_bytes >> 20
                    run.end(f"free disk space in {limits.disk} fell below {mib} MiB")

    def _finish(self, now: float) -> None:
        """Finishes commands whose supervisor has ended, once their pipes close or after a delay."""
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
