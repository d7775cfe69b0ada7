"""Runs the steps, each with a limit of its own, and keeps what is done as it goes."""

import contextlib
import enum
import os
import shutil
import signal
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import attrs

from comparative_benchmark.machine import memory
from gpu_check.plan import Machine, Step

# With fewer CPUs, steps beside each other only take time from each other.
_FEWEST_CPUS_FOR_COMPANY = 8
# A step that would be cut off at once is not begun.
_SHORTEST_S = 15.0
# How long a command may take to keep its results when it is interrupted.
_GRACE_S = 10.0
_MARK = "CBS_GPU_CHECK_STEP"
# How long a command has, for those that can do with less.
LIMIT_VARIABLE = "CBS_GPU_CHECK_LIMIT_S"


class Ending(enum.Enum):
    """How a step ended."""

    OK = "ok"
    FAILED = "failed"
    TIMEOUT = "timeout"
    NOT_RUN = "not run"


@attrs.frozen(kw_only=True)
class Outcome:
    """What came of a step.

    Attributes:
      step: its name; `title` for people.
      ending: how it ended.
      seconds: that it took.
      reason: why it is not ok; None if it is.
      codes: exit codes of the commands that ended by themselves.
    """

    step: str
    title: str
    ending: Ending
    seconds: float = 0.0
    reason: str | None = None
    codes: tuple[int, ...] = ()


class Driver:
    """Takes the steps in their order until they are done or the time is up.

    Attributes:
      outcomes: of the steps so far, in the order in which they ended.
    """

    def __init__(
        self,
        machine: Machine,
        *,
        deadline: float,
        keep: Callable[[], None],
        say: Callable[[str], None],
    ) -> None:
        """Starts nothing yet.

        Args:
          machine: where to run, and the folders.
          deadline: `time.monotonic()` at which the last step must have ended.
          keep: called after each step, with what it wrote in the output folder.
          say: told of progress.
        """
        self.outcomes: list[Outcome] = []
        self._machine = machine
        self._deadline = deadline
        self._keep = keep
        self._say = say
        self._stopped = threading.Event()
        self._running: set[subprocess.Popen[bytes]] = set()

    @property
    def logs(self) -> Path:
        """The folder of what the steps print, a file each."""
        return self._machine.scratch / "logs"

    def run(self, steps: Sequence[Step]) -> None:
        """Runs the steps; those that nothing is timed in beside each other, with CPUs enough."""
        self.logs.mkdir(parents=True, exist_ok=True)
        for group in self._groups(steps):
            if len(group) == 1:
                self._finish(self._run(group[0]))
                continue
            # Workers die with the thread that started them: a step's thread lives as long as it.
            with ThreadPoolExecutor(len(group)) as pool:
                try:
                    for outcome in pool.map(self._run, group):
                        self._finish(outcome)
                except BaseException:
                    self._stop()  # the pool waits for its threads, which wait for their commands
                    raise

    def _groups(self, steps: Sequence[Step]) -> Iterator[list[Step]]:
        company = self._machine.cpus >= _FEWEST_CPUS_FOR_COMPANY
        group: list[Step] = []
        for step in steps:
            if group and not (company and step.beside and group[-1].beside):
                yield group
                group = []
            group.append(step)
        if group:
            yield group

    def _stop(self) -> None:
        """Ends the commands of all threads, and begins no other."""
        self._stopped.set()
        for process in tuple(self._running):
            _end(process)

    def _finish(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)
        reason = f": {outcome.reason}" if outcome.reason else ""
        self._say(f"{outcome.step}: {outcome.ending.value}, {outcome.seconds:.0f} s{reason}")
        self._keep()

    def _run(self, step: Step) -> Outcome:
        outcome = Outcome(step=step.name, title=step.title, ending=Ending.NOT_RUN)
        if missing := [name for name in step.needs if not self._machine.has(name)]:
            return attrs.evolve(outcome, reason=f"{', '.join(missing)} not installed")
        started = time.monotonic()
        limit_s = min(step.limit_s, self._deadline - started)
        if limit_s < min(_SHORTEST_S, step.limit_s):
            return attrs.evolve(outcome, reason="no time left")
        self._say(f"{step.name}: {step.title} (at most {limit_s:.0f} s) ...")
        codes: list[int] = []
        code: int | None = 0
        for command in step.command_lines():
            left_s = limit_s - (time.monotonic() - started)
            code = self._command(step, command, left_s)
            if code is None:
                break
            codes.append(code)
            if code and step.must_pass:
                break
        seconds = time.monotonic() - started
        self._collect(step)
        outcome = attrs.evolve(outcome, seconds=seconds, codes=tuple(codes))
        if code is None and limit_s < step.limit_s:
            return attrs.evolve(outcome, reason=f"the time ran out after {limit_s:.0f} s")
        if code is None:
            reason = f"stopped after {limit_s:.0f} s; finished results are kept"
            return attrs.evolve(outcome, ending=Ending.TIMEOUT, reason=reason)
        if code and step.must_pass:
            reason = f"exit code {code}, see logs/{step.name}.log"
            return attrs.evolve(outcome, ending=Ending.FAILED, reason=reason)
        return attrs.evolve(outcome, ending=Ending.OK)

    def _command(self, step: Step, command: Sequence[str], limit_s: float) -> int | None:
        """Returns the exit code of a command; None for one that had to be ended.

        A program that is not there has exit code 127, as a shell gives it.
        """
        if self._stopped.is_set():
            return None
        mark = uuid.uuid4().hex
        with (self.logs / f"{step.name}.log").open("ab") as log:
            log.write(f"$ {' '.join(command)}\n".encode())
            log.flush()
            try:
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd=self._machine.scratch,
                    process_group=0,
                    env={
                        **os.environ,
                        **step.variables,
                        _MARK: mark,
                        LIMIT_VARIABLE: str(max(limit_s, 0.0)),
                    },
                )
            except OSError as error:
                log.write(f"{error}\n".encode())
                return 127
            self._running.add(process)
            try:
                if self._stopped.is_set():  # before it was among those that were ended
                    return None
                return process.wait(timeout=max(limit_s, 0.0))
            except subprocess.TimeoutExpired:
                return None
            finally:
                self._running.discard(process)
                _end(process)
                # Workers have groups of their own, and nothing of a step may outlive it.
                memory.kill_marked(_MARK, mark)

    def _collect(self, step: Step) -> None:
        """Copies what a step wrote to the output folder, each file whole or not at all."""
        for name in step.writes:
            made = self._machine.scratch / name
            if made.is_file():
                draft = self._machine.output / f".{name}.tmp"
                shutil.copyfile(made, draft)
                draft.replace(self._machine.output / name)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Interrupts a command as Ctrl-C would, so that it keeps its results; kills what stays."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=_GRACE_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
