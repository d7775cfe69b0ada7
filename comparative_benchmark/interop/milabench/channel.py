"""Communication with the process that executes a benchfile.

`host.py` executes a benchfile and requests commands over a pipe. This module runs them and returns
their exit codes.
"""

import contextlib
import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from comparative_benchmark.backends import host_settings
from comparative_benchmark.interop.milabench import workspace
from comparative_benchmark.interop.milabench.config import Plan
from comparative_benchmark.interop.milabench.processes import execution
from comparative_benchmark.interop.milabench.processes.execution import (
    CommandLine,
    Ended,
    Limits,
    Listener,
    disk_reserve_bytes,
)
from comparative_benchmark.interop.milabench.workspace import (
    Placement,
    as_json,
    gpus,
    host_command,
    host_environment,
)
from comparative_benchmark.results.record import Status
from openxla.benchmark.files import temporary_folder

INSTALL, PREPARE, RUN, PIN = "install", "prepare", "run", "pin"

# For the benchfile itself, and for its commands in all phases except `run`.
LONGEST_S = 24 * 3600.0


@attrs.define(kw_only=True)
class PhaseOutcome:
    """Outcome of a phase.

    Attributes:
      ended: the commands that it ran, in order.
      status, reason: `ok` and None, or the first failure.
    """

    status: Status = Status.OK
    reason: str | None = None
    traceback: str | None = None
    ended: list[Ended] = attrs.field(factory=list)

    def fail(self, status: Status, reason: str, traceback: str | None = None) -> None:
        """Records the first failure."""
        if self.status is Status.OK:
            self.status, self.reason, self.traceback = status, reason, traceback


@attrs.frozen(kw_only=True)
class Wishes:
    """Options for a phase, apart from the choice of benchmarks.

    Attributes:
      variant: `--variant`; None for the configured one.
      arguments: arguments of `pin`.
      say: shows a line to the user.
      listen: called when a process reports events.
      echo: whether the output of commands is shown.
      disk_reserve_bytes: disk space that must stay free; None for the default.
      protect: files that scripts must not change.
      alone: whether to run only one of the planned processes, on the CPUs that it would have
        next to the others.
    """

    variant: str | None = None
    arguments: Mapping[str, Any] = attrs.field(factory=dict)
    say: Callable[[str], None] = print
    listen: Listener = lambda _, __: None
    echo: bool = False
    disk_reserve_bytes: int | None = None
    protect: tuple[str, ...] = ()
    alone: bool = False


class Channel:
    """Communication with the process of a benchfile during one phase."""

    def __init__(
        self, phase: str, placement: Placement, wishes: Wishes, outcome: PhaseOutcome
    ) -> None:
        self._phase, self._placement = phase, placement
        self._wishes, self._outcome = wishes, outcome
        self._rest = b""
        self._done = False
        self._answers = -1

    def serve(self) -> None:
        """Serves the benchfile's requests until it ends, and records the outcome."""
        bench = self._placement.bench
        questions, questions_write = os.pipe()
        answers_read, self._answers = os.pipe()
        with temporary_folder("bench") as temporary:
            file = Path(temporary) / "asked.json"
            file.write_text(as_json(self._asked()), encoding="utf-8")
            host = CommandLine(
                argv=tuple(host_command(questions_write, answers_read, file)),
                # milabench's guide prescribes the benchmark's folder as the current one.
                cwd=str(bench.folder),
                env=host_environment(),
                tag=f"{bench.name}.{self._phase}.benchfile",
            )
            try:
                [ended] = execution.run(
                    [host],
                    # It writes little itself; the limits of its commands are stricter.
                    limits=Limits(duration_s=LONGEST_S, network=True, disk=self._placement.base),
                    log_dir=self._placement.log_dir,
                    pass_fds=(questions_write, answers_read),
                    also={questions: self._take},
                )
            finally:
                os.close(questions)
                os.close(self._answers)
        if not self._done:
            words = f": {ended.last_words}" if ended.last_words else ""
            self._outcome.fail(
                Status.FAILED, f"benchfile.py ended too early ({ended.ending}){words}"
            )

    def _asked(self) -> dict[str, Any]:
        plan, alone = self._placement.bench.plan, self._wishes.alone
        return {
            "phase": self._phase,
            "config": self._placement.config(self._wishes.variant),
            "gpus": [attrs.asdict(gpu) for gpu in gpus()][: 1 if alone and plan.per_gpu else None],
            "per_gpu": plan.per_gpu,
            "jobs": 1 if alone else plan.jobs,
            "arguments": dict(self._wishes.arguments),
        }

    def _limits(self, duration_s: float, *, network: bool) -> Limits:
        disk, reserve = self._placement.base, self._wishes.disk_reserve_bytes
        return Limits(
            duration_s=duration_s,
            network=network,
            disk=disk,
            disk_reserve_bytes=disk_reserve_bytes(disk) if reserve is None else reserve,
            protect=self._wishes.protect,
        )

    def _take(self, piece: bytes) -> None:
        *lines, self._rest = (self._rest + piece).split(b"\n")
        for line in lines:
            try:
                message = json.loads(line)
                self._answer(message)
            except (AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
                self._outcome.fail(Status.FAILED, f"benchfile.py sent invalid data: {error!r}")

    def _answer(self, message: Mapping[str, Any]) -> None:
        kind = message["type"]
        if kind == "message":
            self._wishes.say(f"{self._placement.bench.name}: {message['text']}")
        elif kind == "execute":
            codes: list[int] = []
            try:
                codes = self._execute([_Wanted(**item) for item in message["commands"]])
            finally:
                # The benchfile waits for an answer, unless it has ended.
                with contextlib.suppress(BrokenPipeError):
                    os.write(self._answers, json.dumps({"codes": codes}).encode() + b"\n")
        elif kind in ("failed", "unsupported"):
            self._done = True
            status = Status.FAILED if kind == "failed" else Status.UNSUPPORTED
            text = message["text"]
            if message.get("ran_by_suite"):
                text = self._with_last_words(text)
            self._outcome.fail(status, text, message.get("traceback"))
        elif kind == "done":
            self._done = True

    def _with_last_words(self, text: str) -> str:
        last = self._outcome.ended[-1] if self._outcome.ended else None
        why = last and (last.reason or last.last_words)
        return f"{text}: {why}" if why else text

    def _execute(self, wanted: "Sequence[_Wanted]") -> list[int]:
        running = self._phase == RUN
        wanted = _with_unique_tags(wanted)
        at_once = max(len(wanted), planned(self._placement.bench.plan) if self._wishes.alone else 0)
        sets = (_cpu_sets(at_once) if running else [()] * at_once)[: len(wanted)]
        duration_s = self._placement.bench.max_duration_s if running else LONGEST_S
        try:
            commands = [self._command(item, own) for item, own in zip(wanted, sets, strict=True)]
        except workspace.VenvError as error:
            self._outcome.fail(Status.FAILED, str(error))
            return [1] * len(wanted)
        ended = execution.run(
            commands,
            limits=self._limits(duration_s, network=not running),
            log_dir=self._placement.log_dir,
            listen=self._wishes.listen,
            echo=self._wishes.echo,
        )
        # Omit auxiliary commands unless they fail.
        self._outcome.ended += [
            how for item, how in zip(wanted, ended, strict=True) if item.measured or _code(how)
        ]
        return [_code(item) for item in ended]

    def _command(self, wanted: "_Wanted", cpu_set: tuple[int, ...]) -> CommandLine:
        placement = self._placement
        first, *rest = wanted.argv
        env = placement.environment(wanted.env, scripts=self._phase in (PREPARE, RUN))
        argv = list(wanted.argv)
        if first == "pip" and rest[:1] == ["install"]:
            argv = workspace.install_command(placement.dirs["venv"], rest[1:])
            env = workspace.installer_environment()
        elif first == "pip-compile":
            argv = workspace.compile_command(placement.base, rest)
            env = workspace.installer_environment()
        elif path := shutil.which(first, path=env["PATH"]):
            argv[0] = path
        elif first.endswith(".py") and Path(first).is_file():
            # Not executable, e.g. unpacked from an archive.
            argv = [str(placement.dirs["venv"] / "bin" / "python"), *argv]
        if cpu_set:
            env.setdefault("OMP_NUM_THREADS", str(len(cpu_set)))
        return CommandLine(
            argv=tuple(argv),
            cwd=wanted.cwd,
            env=env,
            use_stdout=wanted.use_stdout,
            tag=f"{wanted.tag}.{self._phase}" if self._phase != RUN else wanted.tag,
            cpus=cpu_set,
            devices=tuple(map(str, wanted.devices)),
        )


def planned(plan: Plan) -> int:
    """Returns the number of simultaneous processes of a benchmark on this machine."""
    return max(1, len(gpus())) if plan.per_gpu else plan.jobs


@attrs.frozen(kw_only=True)
class _Wanted:
    """A command requested by a benchfile."""

    argv: list[str]
    cwd: str
    env: dict[str, str]
    use_stdout: bool
    measured: bool
    tag: str
    devices: list[Any]


def _with_unique_tags(wanted: Sequence[_Wanted]) -> list[_Wanted]:
    """Returns the commands with unique tags, so that their logs have different names."""
    tags = [item.tag for item in wanted]
    return [
        item if tags.count(item.tag) == 1 else attrs.evolve(item, tag=f"{item.tag}.{number}")
        for number, item in enumerate(wanted)
    ]


def _code(ended: Ended) -> int:
    if ended.reason:
        return 1
    # A script that was stopped at its own request has succeeded.
    return 0 if ended.stopped else ended.code if ended.code is not None else 1


def _cpu_sets(count: int) -> list[tuple[int, ...]]:
    """Returns a disjoint CPU set for each process; empty sets if there are too few CPUs.

    A single process may use all CPUs, so its set is also empty.
    """
    usable = host_settings.usable_cpus()
    if count <= 1 or count > len(usable):
        return [()] * count
    share = len(usable) // count
    return [tuple(usable[i * share : (i + 1) * share]) for i in range(count)]
