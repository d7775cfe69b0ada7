"""A worker process, from its start until it has ended with all its descendants.

A session goes from `started` through any number of commands to `ended`. Each phase announced by the
worker has a deadline, and so has the whole session. If a session ends early for any reason, it
raises `SessionEnded` with status, phase and evidence, and leaves no process behind: the worker's
process group is killed, and so are processes that left the group.
"""

import contextlib
import glob
import itertools
import json
import os
import select
import signal
import stat
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar

import attrs

from comparative_benchmark.analysis.machine import other_processes
from comparative_benchmark.analysis.machine.gpu_state import SESSION_VARIABLE
from comparative_benchmark.backends.missing_packages import Absence
from comparative_benchmark.engine import messages
from comparative_benchmark.engine.messages import (
    Called,
    Failure,
    Hello,
    Message,
    PhaseEntered,
    ProcessTrack,
    Report,
    Timeline,
)
from comparative_benchmark.engine.worker.executor import Executor
from comparative_benchmark.engine.worker.protocol import Decoder, ProtocolError, encode
from comparative_benchmark.results.record import ProgramSource, Status
from openxla.benchmark import bounded
from openxla.benchmark.artifacts import workload_store
from openxla.benchmark.artifacts.cache import Cache

# Phases in which the worker takes times; redrawing a line would disturb its CPU.
TIMED = frozenset({"execute", "measure", "profile", "fresh_runs", "generation", "step_parts"})

# Called with a description of the worker and its phase.
Listener = Callable[[str, str], None]
_BEATS_S = 1.0
_listeners: list[Listener] = []


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Calls a listener with the phases of all workers, from any thread, during the block."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


def beat(worker: str, phase: str, *, entered: bool = False) -> None:
    """Notifies listeners that a worker is in a phase.

    Args:
      worker: description of the worker.
      phase: its phase.
      entered: whether the phase has just started; then even timed phases are reported, because
        nothing is being measured yet.
    """
    if entered or phase not in TIMED:
        for listener in _listeners:
            listener(worker, phase)


@contextmanager
def during(worker: str, phase: str) -> Iterator[None]:
    """Notifies listeners regularly, during the block, of a program without progress output."""
    over = threading.Event()

    def go_on() -> None:
        beat(worker, phase, entered=True)
        while not over.wait(_BEATS_S):
            beat(worker, phase)

    thread = threading.Thread(target=go_on, daemon=True, name=f"pulse of {phase}")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@attrs.frozen(kw_only=True)
class Program:
    """A published program that a compiler-level backend starts from.

    Attributes:
      files: files by artifact type, with their SHA-256 digests.
      origin: model, URL and SHA-256 digest of the manifest that listed the files.
    """

    files: Mapping[str, Mapping[Path, str]] = attrs.field(hash=False)
    origin: Mapping[str, str] = attrs.field(hash=False)

    @property
    def paths(self) -> dict[str, list[str]]:
        """Paths of the files by type, as passed to a worker."""
        return {kind: [str(path) for path in paths] for kind, paths in self.files.items()}

    @property
    def source(self) -> ProgramSource:
        """The source that results record."""
        digests = {path.name: sha for paths in self.files.values() for path, sha in paths.items()}
        return ProgramSource(**self.origin, types=tuple(sorted(self.files)), digests=digests)


# Environment variable with the folders that a worker hides before running foreign code.
HIDDEN_VARIABLE = "CBS_HIDDEN"


@attrs.frozen
class Hidden:
    """Folders that a worker hides, each with patterns of files that remain visible."""

    folders: Mapping[str, Sequence[str]]

    @classmethod
    def of(cls, workload_directory: Path | None = None, program: Program | None = None) -> Self:
        """Returns the folders to hide from a worker.

        Args:
          workload_directory: directory of its workload; None if it serves all workloads.
          program: published program that it starts from.
        """
        of_all = workload_store.directories()
        own = "*" if workload_directory is None else glob.escape(workload_directory.name)
        cache = Cache().directory
        files = itertools.chain.from_iterable(program.files.values() if program else ())
        needed = [path.relative_to(cache) for path in files if path.is_relative_to(cache)]
        return cls(
            {
                str(of_all): [f"{own}/{kind}" for kind in workload_store.INPUT_KINDS],
                str(cache): [glob.escape(str(path)) for path in needed],
            }
        )

    def to_json(self) -> str:
        """Returns the value of the environment variable."""
        return json.dumps(self.folders)


A = TypeVar("A", bound=Report)
M = TypeVar("M", bound=Hello | Report)
T = TypeVar("T")

# Environment variable with the CPUs that a worker pins itself to before importing anything, because
# libraries count CPUs on import.
CPUS_VARIABLE = "CBS_CPUS"
_POLL_S = 0.1
# Checking a worker's memory takes time from a core that the worker may be using.
_MEASURING_POLL_S = 0.25
_KEPT_OF_A_FLOOD = 2**20  # bytes of the log


class SessionEnded(Exception):  # noqa: N818  # an end is not always an error
    """The worker failed, has ended, or was not started."""

    def __init__(
        self,
        status: Status,
        phase: str,
        reason: str,
        report: Report | None = None,
        absence: Absence | None = None,
    ) -> None:
        super().__init__(reason)
        self.status = status
        self.phase = phase
        self.reason = reason
        self.report = report
        self.absence = absence

    @classmethod
    def by(cls, failure: Failure) -> Self:
        """Returns the end reported by a worker itself."""
        return cls(failure.status, failure.phase, failure.message, failure)

    @classmethod
    def without(cls, absence: Absence) -> Self:
        """Returns the end of a trial with missing modules."""
        return cls(Status.UNSUPPORTED, "import", absence.sentence, absence=absence)

    @property
    def explanation(self) -> str:
        """The reason without the exception type."""
        if isinstance(self.report, Failure) and self.report.explanation is not None:
            return self.report.explanation
        return self.reason

    @property
    def traceback(self) -> str | None:
        """The worker's traceback, if available."""
        return self.report.traceback if isinstance(self.report, Failure) else None


@attrs.frozen(kw_only=True)
class Limits:
    """Resource limits of a session.

    Attributes:
      deadline_s: seconds for the whole session.
      phase_deadlines_s: seconds by phase; phases not listed have only the overall deadline.
      memory_bytes: resident memory of the worker and its children.
      log_bytes: maximum output of the worker and its children.
    """

    deadline_s: float = 3600.0
    phase_deadlines_s: Mapping[str, float] = attrs.field(factory=dict)
    memory_bytes: int = attrs.field(factory=other_processes.default_limit_bytes)
    log_bytes: int = 2**26


class Session:
    """A worker process and its pipes; use as a context manager.

    The worker's environment is `inherited`, by default this process's environment, updated with
    `environment`. `folders` maps paths of the worker, which differ in each run, to placeholders for
    results. `truth_not_isolated` is the reason if the worker can still see folders that it had to
    hide, else None.
    """

    def __init__(
        self,
        *,
        limits: Limits,
        log_file: Path,
        environment: Mapping[str, str],
        inherited: Mapping[str, str] | None = None,
        python: str = sys.executable,
        track: ProcessTrack | None = None,
    ) -> None:
        self.folders: dict[str, str] = {}
        self._limits = limits
        # Spans go to an unused timeline if none was requested.
        self._track = track or Timeline().process(log_file.stem)
        self._decoder = Decoder()
        self._calls = 0
        self._id = uuid.uuid4().hex
        self._phase = "start"
        self._paused_at: float | None = None
        self._started = self._phase_started = time.monotonic()
        self._oom_kills = other_processes.oom_kill_count()
        # Keep the file open, because the model may remove or replace it.
        self._log = _opened_log(log_file)
        self._log_began = os.fstat(self._log).st_size
        commands_read, self._commands = os.pipe()
        self._answers, answers_write = os.pipe()
        self._pipes_open = True
        self._track.command("start")
        try:
            self._process = other_processes.start_worker(
                [
                    # -P omits the current directory from the path: in a checkout, folders of
                    # backends have the same names as the packages that they import.
                    *(python, "-P", "-m", "comparative_benchmark.engine.worker"),
                    *(str(commands_read), str(answers_write)),
                ],
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                pass_fds=(commands_read, answers_write),
                env={
                    **(os.environ if inherited is None else inherited),
                    **environment,
                    SESSION_VARIABLE: self._id,
                },
            )
        finally:
            os.close(commands_read)
            os.close(answers_write)
        try:
            self.truth_not_isolated = self._receive(Hello).truth_not_isolated
        except BaseException:
            self.kill()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self.resume()
            if kind is None and self._process.poll() is None:
                with contextlib.suppress(OSError):
                    os.write(self._commands, encode({"command": "exit", "id": 0, "arguments": {}}))
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(timeout=5)
        finally:
            self.kill()

    def call(self, kind: type[A], **arguments: Any) -> A:
        """Sends the command for an answer class and returns the worker's answer.

        Raises:
          SessionEnded: the command failed, the answer is malformed, or the worker died, hung or
            exceeded its memory limit.
        """
        command = messages.command_of(kind)
        self._phase, self._phase_started = command, time.monotonic()
        numbers = {name: value for name, value in arguments.items() if isinstance(value, int)}
        self._track.command(command, **numbers)
        self._calls += 1
        data = encode({"command": command, "id": self._calls, "arguments": arguments})
        try:
            while data:
                data = data[os.write(self._commands, data) :]
        except BrokenPipeError:
            raise self._ended_by_itself() from None
        return self._receive(kind)

    def renew(self) -> None:
        """Resets deadline and output limit, for a session that serves several workloads."""
        self._started = time.monotonic()
        self._log_began = os.fstat(self._log).st_size

    def follow(self, track: ProcessTrack) -> None:
        """Records subsequent spans on another track."""
        self._track = track

    def pause(self) -> None:
        """Stops the worker and its children; deadlines are suspended meanwhile."""
        if self._paused_at is None:
            self._signal(signal.SIGSTOP)
            self._paused_at = time.monotonic()
            self._track.paused()

    def resume(self) -> None:
        """Resumes a stopped worker."""
        if self._paused_at is not None:
            self._signal(signal.SIGCONT)
            self._track.resumed()
            away = time.monotonic() - self._paused_at
            self._started += away
            self._phase_started += away
            self._paused_at = None

    def resident_bytes(self) -> int:
        """Returns the current resident memory of the worker and its children."""
        return other_processes.resident_bytes(self._process.pid)

    def cpu_ms(self) -> float | None:
        """Returns the worker's CPU time as counted by the kernel; None if unavailable."""
        clock = (~self._process.pid << 3) | 2  # CPUCLOCK_SCHED of another process
        try:
            return time.clock_gettime_ns(clock) / 1e6
        except OSError:
            return None

    def interrupt(self) -> None:
        """Kills the worker from another thread; the waiting thread gets the error and cleans up.

        The pipes stay open, because that thread is reading them.
        """
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        # Once its end is known, the system may use the number again.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if self._pipes_open:
                os.killpg(self._process.pid, number)

    def kill(self) -> None:
        """Kills the worker and all its descendants; may be called repeatedly."""
        try:
            self._end()
        except KeyboardInterrupt:
            # Restart the clean-up, because daemons started by the model would outlive us.
            self._end()
            raise

    def _end(self) -> None:
        self._signal(signal.SIGKILL)
        self._process.wait()
        self._track.answered()
        other_processes.kill_marked(SESSION_VARIABLE, self._id)
        other_processes.worker_ended(self._process.pid)
        if self._pipes_open:
            self._pipes_open = False
            os.close(self._commands)
            os.close(self._answers)
            os.close(self._log)

    def _receive(self, kind: type[M]) -> M:
        """Waits for a message of a class while checking deadlines and memory.

        Raises:
          SessionEnded: the worker sent another message or none.
        """
        while True:
            patience_s = _MEASURING_POLL_S if self._phase in TIMED else _POLL_S
            readable, _, _ = select.select([self._answers], [], [], patience_s)
            data = os.read(self._answers, 1 << 20) if readable else b""
            if data:
                for message in self._decode(data):
                    if isinstance(message, PhaseEntered):
                        self._enter_phase(message.phase)
                    elif isinstance(message, Report) and message.id != self._calls:
                        raise self._malformed("the report does not match the last command")
                    elif isinstance(message, Failure):
                        self._track.answered()
                        raise SessionEnded.by(message)
                    elif isinstance(message, kind):
                        self._track.answered()
                        return message
                    else:
                        got = type(message).__name__
                        raise self._malformed(f"expected {kind.__name__}, got {got}")
            elif readable or self._process.poll() is not None:
                raise self._ended_by_itself()
            else:
                beat(self._track.shown, self._phase)
            self._check_limits()

    def _decode(self, data: bytes) -> list[Message]:
        try:
            return [messages.decode(plain) for plain in self._decoder.feed(data)]
        except (ProtocolError, messages.MessageError) as error:
            raise self._malformed(str(error)) from error

    def _malformed(self, reason: str) -> SessionEnded:
        self.kill()
        reason = f"the worker sent a malformed message: {reason}"
        return SessionEnded(Status.FAILED, self._phase, reason)

    def _enter_phase(self, phase: str) -> None:
        self._phase, self._phase_started = phase, time.monotonic()
        self._track.phase(phase)
        beat(self._track.shown, phase, entered=True)

    def _check_limits(self) -> None:
        now, limits = time.monotonic(), self._limits
        phase_limit = limits.phase_deadlines_s.get(self._phase, limits.deadline_s)
        for elapsed, limit, what in (
            (now - self._phase_started, phase_limit, f"phase {self._phase}"),
            (now - self._started, limits.deadline_s, "the trial"),
        ):
            if elapsed > limit:
                self.kill()
                reason = f"{what} took longer than {limit:g} s; raise --timeout or --deadline"
                raise SessionEnded(Status.TIMEOUT, self._phase, reason)
        used = self.resident_bytes()
        if used > limits.memory_bytes:
            self.kill()
            reason = (
                f"the worker used {used / 2**30:.1f} GiB, more than the limit of "
                f"{limits.memory_bytes / 2**30:.1f} GiB (--memory-limit)"
            )
            report = Report(host_memory_peak_bytes=used)
            raise SessionEnded(Status.OUT_OF_MEMORY, self._phase, reason, report)
        if os.fstat(self._log).st_size - self._log_began > limits.log_bytes:
            # Truncate only after all writers have ended; kill() closes our descriptor.
            log = os.dup(self._log)
            self.kill()
            # A full disk would lose the results of all other trials.
            with contextlib.suppress(OSError):
                os.ftruncate(log, self._log_began + _KEPT_OF_A_FLOOD)
            os.close(log)
            reason = f"the worker printed more than {limits.log_bytes / 2**20:.0f} MiB"
            raise SessionEnded(Status.FAILED, self._phase, reason)

    def _ended_by_itself(self) -> SessionEnded:
        """Returns how a worker ended that we did not kill."""
        try:
            code = self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.kill()
            return SessionEnded(
                Status.CRASHED, self._phase, "the worker closed its pipe but did not exit"
            )
        tail = self._log_tail()
        if code == -signal.SIGKILL and other_processes.oom_kill_count() > self._oom_kills:
            reason = "the kernel killed the worker because memory ran out"
            return SessionEnded(Status.OUT_OF_MEMORY, self._phase, reason)
        last = f": {tail}" if tail else ""
        reason = f"the worker exited unexpectedly ({bounded.exit_description(code)}){last}"
        return SessionEnded(Status.CRASHED, self._phase, reason)

    def _log_tail(self) -> str:
        end = os.fstat(self._log).st_size
        tail = os.pread(self._log, 2000, max(0, end - 2000))
        lines = tail.decode(errors="replace").strip().splitlines()
        # The full stack dump is in the log; its first line is the most informative.
        return next((line for line in lines if "Fatal" in line), lines[-1] if lines else "")[:300]


def _opened_log(path: Path) -> int:
    """Opens a log file and returns its descriptor; replaces the file if it is not regular."""
    path.parent.mkdir(parents=True, exist_ok=True)
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK
    descriptor = os.open(path, flags, 0o644)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    path.unlink()
    return os.open(path, flags, 0o644)


class InProcessSession:
    """Runs commands in this process, so a crash ends the program.

    A `SessionPool` can reuse it after each model.
    """

    usable, served = True, 0
    truth_not_isolated = "the run has no worker processes"

    def __init__(self, *, environment: Mapping[str, str]) -> None:
        # Restored later, because folders in the variables are deleted after the run.
        self._before = {name: os.environ.get(name) for name in environment}
        os.environ.update(environment)
        self._executor = Executor(announce=lambda _: None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        del self._executor
        self.end()

    def call(self, kind: type[A], **arguments: Any) -> A:
        """Runs the command for an answer class and returns the answer.

        Raises:
          SessionEnded: the command failed or the answer is malformed.
        """
        command = messages.command_of(kind)
        plain = self._executor.handle({"command": command, "id": 0, "arguments": arguments})
        try:
            answer = messages.decode(plain)
            if isinstance(answer, Failure) and answer.id == 0:
                raise SessionEnded.by(answer)
            if not isinstance(answer, kind) or answer.id != 0:
                got = type(answer).__name__
                raise messages.MessageError(f"expected {kind.__name__}, got {got}")
        except messages.MessageError as error:
            reason = f"the worker sent a malformed message: {error}"
            raise SessionEnded(Status.FAILED, command, reason) from error
        return answer

    def cpu_ms(self) -> float | None:
        """Returns the CPU time of this process, which acts as the worker."""
        return time.process_time_ns() / 1e6

    def renew(self) -> None:
        """Does nothing, because deadlines do not apply."""

    def end(self) -> None:
        """Restores the environment."""
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        self._before = {}


class Callee(Protocol):
    """The part of a session's interface that sends commands."""

    def call(self, kind: type[A], **arguments: Any) -> A:
        """Sends the command for an answer class and returns the worker's answer."""


def call_function(session: Callee, function: str, arguments: Mapping[str, Any], kind: type[T]) -> T:
    """Calls a function in a worker and decodes its result as `kind`.

    Args:
      session: session of the worker.
      function: the function as `module:function`.
      arguments: keyword arguments; JSON values.
      kind: expected class of the returned JSON value.

    Raises:
      SessionEnded: the function failed or returned an invalid value.
    """
    answer = session.call(Called, function=function, arguments=dict(arguments))
    try:
        value: T = messages.converted(answer.value, kind)
    except messages.MessageError as error:
        reason = f"{function} returned a malformed value: {error}"
        raise SessionEnded(Status.FAILED, "call", reason) from error
    return value
