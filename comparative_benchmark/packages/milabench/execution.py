"""Runs commands of foreign code at once and listens to them; none of them outlives this.

Each command has a `keeper` of its own (see there), a pipe for events and two for its output. The
parent only waits: events carry rates that the scripts measured themselves, so nothing is timed
through a pipe. Every process is marked in its environment, and when all keepers have done their
work, whatever still has the mark is killed.
"""

import contextlib
import json
import os
import selectors
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

import attrs

from comparative_benchmark.machine import memory
from comparative_benchmark.machine.gpu_users import SESSION_VARIABLE
from comparative_benchmark.packages.milabench import keeper
from comparative_benchmark.packages.milabench.events import EventLines, SmuggledEvents
from comparative_benchmark.packages.milabench.observed import Observed

# More output is dropped; the log says so.
LOG_LIMIT_BYTES = 16 * 2**20
# Below it a command that writes is ended: a full disk would cost all others their results.
_DISK_RESERVE_BYTES, _DISK_RESERVE = 256 * 2**20, 0.05
_LOOK_S = 0.5
_PIECE = 1 << 16
_AFTER_END_S = 1.0
# Where no namespace is allowed, programs that honour proxies find none.
_NO_PROXIES = {
    spelt: value
    for value, names in (
        ("http://127.0.0.1:9", ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")),
        ("localhost,127.0.0.1,::1", ("NO_PROXY",)),
    )
    for name in names
    for spelt in (name, name.lower())
}


@attrs.frozen(kw_only=True)
class CommandLine:
    """What to run.

    Attributes:
      argv, cwd, env: all variables of the command.
      use_stdout: whether its events come in escapes of its output; they are looked for anyway.
      tag: name of the process in logs and results.
      cpus: on which it may run; empty for all.
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
    """How a command came to its end.

    Attributes:
      code: exit code; negative for a signal; None where its keeper was killed.
      reason: why we ended it; None if it ended by itself.
      stopped: whether it had asked to be stopped, as an early stop does.
      left: processes that it left behind, which were killed.
      isolated: whether it had no network; `network_tries`: how often it wanted one.
    """

    tag: str
    observed: Observed
    log_file: Path
    code: int | None = None
    reason: str | None = None
    stopped: bool = False
    wall_s: float = 0.0
    cpu_s: float = 0.0
    peak_memory_bytes: int = 0
    involuntary_switches: int = 0
    left: int = 0
    isolated: bool = False
    network_tries: int | None = None
    last_words: str = ""
    devices: tuple[str, ...] = ()
    cpus: tuple[int, ...] = ()


@attrs.frozen(kw_only=True)
class Limits:
    """What commands may use.

    Attributes:
      duration_s: after which they are ended.
      network: whether they have one.
      disk: folder whose disk must keep `disk_reserve_bytes` free.
      protect: files that the commands cannot change, where the system allows that.
    """

    duration_s: float
    network: bool
    disk: Path
    disk_reserve_bytes: int = 0
    protect: tuple[str, ...] = ()


def disk_reserve_bytes(disk: Path) -> int:
    """Returns what must stay free: 256 MiB, of a small disk 5 %."""
    return min(_DISK_RESERVE_BYTES, int(shutil.disk_usage(disk).total * _DISK_RESERVE))


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
    """Runs commands at once; returns how each ended, in their order.

    Args:
      commands: what to run.
      limits: of each.
      log_dir: folder of their output.
      listen: called with a tag when that process has told something.
      echo: whether their output is shown as well.
      pass_fds: ends of pipes that the commands inherit; closed here as soon as they have them.
      also: ends of other pipes, and what takes what comes from them.
    """
    mark = uuid.uuid4().hex
    log_dir.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        # Whatever happens, the keepers see the end of their pipes and kill what they keep.
        stack.callback(memory.kill_marked, SESSION_VARIABLE, mark)
        runs = [
            stack.enter_context(
                _Run(
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


class _Run:
    """A command, its keeper, and what comes from them."""

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
            err: self._take_text,
            report: self._take_status,
        }
        env = {**command.env, SESSION_VARIABLE: mark, "DATA_FD": str(data_write)}
        if not limits.network:
            env |= _NO_PROXIES
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
            self.process = subprocess.Popen(
                [sys.executable, "-I", "-S", keeper.__file__, json.dumps(spec)],
                stdin=subprocess.DEVNULL,
                stdout=out_write,
                stderr=err_write,
                pass_fds=(life_read, report_write, data_write, *pass_fds),
                env={SESSION_VARIABLE: mark, "PATH": os.defpath},
                start_new_session=True,  # Ctrl-C reaches the parent alone, which then ends it
            )
        finally:
            for number in theirs:
                os.close(number)
        self._life_open = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # The end of this pipe is the end of everything that the keeper started.
        self._let_go()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=10)
        self.process.kill()
        self.process.wait()
        for number in self.pipes:
            os.close(number)
        self._log.close()

    def end(self, reason: str | None) -> None:
        """Asks the keeper to end the command, gently at first."""
        self.ended.reason = self.ended.reason or reason
        if self._life_open:
            with contextlib.suppress(BrokenPipeError):
                os.write(self._life, b"t")

    def _let_go(self) -> None:
        if self._life_open:
            self._life_open = False
            os.close(self._life)

    def look_at_memory(self) -> None:
        """Notes the memory of the command and all its children."""
        now = sum(map(memory.resident_bytes, _children(self.process.pid)))
        self.ended.peak_memory_bytes = max(self.ended.peak_memory_bytes, now)

    def finish(self) -> None:
        """Notes how it ended, when all that it said has been read."""
        self.over = True
        self._lines.close()
        self._write(self._smuggled.close())
        ended = self.ended
        if garbage := self._lines.garbage + self._smuggled.garbage:
            ended.observed.oddities["data that is not an event"] += garbage
        ended.last_words = _last_words(self._tail)
        if not self._status:
            ended.reason = ended.reason or "its keeper was killed"
            return
        told: dict[str, Any] = json.loads(self._status)
        ended.code = told["code"]
        ended.wall_s, ended.cpu_s = told["wall_s"], told["cpu_s"]
        ended.involuntary_switches = told["switches"]
        ended.peak_memory_bytes = max(ended.peak_memory_bytes, told["max_rss_bytes"])
        ended.left, ended.isolated = told["left"], told["isolated"]
        ended.network_tries = told["network_tries"]
        self._log.flush()

    def _take_data(self, piece: bytes) -> None:
        for event in self._lines.feed(piece):
            self.ended.observed.take(event)

    def _take_output(self, piece: bytes) -> None:
        text, events = self._smuggled.feed(piece)
        for event in events:
            self.ended.observed.take(event)
        self._write(text)

    def _take_text(self, piece: bytes) -> None:
        self._write(piece)

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


class _Watch:
    """Reads from all commands, and watches time, memory and disk, until the last has ended."""

    def __init__(
        self,
        runs: Sequence[_Run],
        limits: Limits,
        listen: Listener,
        also: Mapping[int, Callable[[bytes], None]],
    ) -> None:
        self._runs = runs
        self._also = also
        self._limits = limits
        self._listen = listen
        self._selector = selectors.DefaultSelector()
        self._open: dict[int, tuple[_Run, Callable[[bytes], None]]] = {}
        for run in runs:
            for number, take in run.pipes.items():
                os.set_blocking(number, False)
                self._open[number] = (run, take)
                self._selector.register(number, selectors.EVENT_READ)
        for number in also:
            self._selector.register(number, selectors.EVENT_READ)
        self._until = time.monotonic() + limits.duration_s
        self._gone: dict[int, float] = {}

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
                        run.end(f"it took longer than {self._limits.duration_s:g} s")
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
        for run in self._runs:
            if not run.over:
                run.look_at_memory()
                if full:
                    mib = limits.disk_reserve_bytes >> 20
                    run.end(f"less than {mib} MiB were left on the disk of {limits.disk}")

    def _finish(self, now: float) -> None:
        """Ends runs whose keeper is gone and whose pipes are empty, or are held open by nobody."""
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


def _children(pid: int) -> list[int]:
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
    except OSError:
        return []
    return list(map(int, text.split()))


def _last_words(tail: bytes) -> str:
    lines = [line.strip() for line in tail.decode(errors="replace").splitlines() if line.strip()]
    # A traceback ends with the exception.
    return lines[-1][:300] if lines else ""
