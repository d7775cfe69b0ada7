"""One phase of one benchmark: a process decides what to run, and it is run for it."""

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from comparative_benchmark.backends import cpus
from comparative_benchmark.packages.milabench import execution, venvs
from comparative_benchmark.packages.milabench.config import Bench
from comparative_benchmark.packages.milabench.execution import CommandLine, Ended, Limits, Listener
from comparative_benchmark.packages.milabench.placement import (
    Placement,
    as_json,
    gpus,
    host_command,
    host_environment,
)
from comparative_benchmark.results.record import Status

# A benchfile only decides; what takes time are its commands, which have limits of their own.
_HOST_DURATION_S = 24 * 3600.0
# More would measure the scheduler, and could end the machine.
_MOST_PER_CPU = 16
INSTALL, PREPARE, RUN, PIN = "install", "prepare", "run", "pin"


@attrs.define(kw_only=True)
class PhaseOutcome:
    """How a phase came out.

    Attributes:
      ended: the commands that it ran, in order.
      status, reason: `ok` and None, or what went wrong.
    """

    status: Status = Status.OK
    reason: str | None = None
    traceback: str | None = None
    ended: list[Ended] = attrs.field(factory=list)

    def fail(self, status: Status, reason: str, traceback: str | None = None) -> None:
        """Notes the first thing that went wrong."""
        if self.status is Status.OK:
            self.status, self.reason, self.traceback = status, reason, traceback


@attrs.frozen(kw_only=True)
class Wishes:
    """What a command line asks for, besides which benchmarks.

    Attributes:
      variant: `--variant`; None for what the configuration says.
      arguments: of `pin`.
      say: shows a line to the user.
      listen: hears of events.
      echo: whether the output of commands is shown.
      disk_reserve_bytes: what must stay free on the disk; None for the usual.
      protect: files that scripts cannot change.
    """

    variant: str | None = None
    arguments: Mapping[str, Any] = attrs.field(factory=dict)
    say: Callable[[str], None] = print
    listen: Listener = lambda _, __: None
    echo: bool = False
    disk_reserve_bytes: int | None = None
    protect: tuple[str, ...] = ()


def do(phase: str, placement: Placement, wishes: Wishes) -> PhaseOutcome:
    """Does a phase of a benchmark; never raises for what foreign code does."""
    outcome = PhaseOutcome()
    bench = placement.bench
    if bench.needs:
        outcome.fail(Status.UNSUPPORTED, f"it needs {bench.needs}")
        return outcome
    if problem := _folder_problem(bench.folder):
        outcome.fail(Status.FAILED, f"{bench.place}: {problem}")
        return outcome
    if phase == RUN and (problem := _too_many(bench)):
        outcome.fail(Status.UNSUPPORTED, problem)
        return outcome
    placement.make_folders()
    _Phase(phase, placement, wishes, outcome).do()
    return outcome


def add_packages(placement: Placement, packages: Sequence[str]) -> PhaseOutcome:
    """Installs further packages into a benchmark's environment."""
    outcome = PhaseOutcome()
    venv = placement.dirs["venv"]
    command = CommandLine(
        argv=tuple(venvs.install_command(venv, ["--quiet", *packages])),
        cwd=str(placement.base),
        env=venvs.installer_environment(),
        tag=f"{placement.bench.name}.{INSTALL}.ours",
    )
    limits = Limits(duration_s=_HOST_DURATION_S, network=True, disk=placement.base)
    [ended] = execution.run([command], limits=limits, log_dir=placement.log_dir)
    if ended.code:
        names = ", ".join(packages)
        outcome.fail(Status.FAILED, f"{names} cannot be installed: {ended.last_words}")
    return outcome


def _too_many(bench: Bench) -> str | None:
    usable = len(cpus.usable_cpus())
    if bench.plan.per_gpu or bench.plan.jobs <= (most := _MOST_PER_CPU * usable):
        return None
    return (
        f"its plan wants {bench.plan.jobs} processes at once, and {usable} CPUs take {most} at most"
    )


def _folder_problem(folder: Path) -> str | None:
    if not folder.is_dir():
        return f"there is no folder {folder}"
    if not (folder / "benchfile.py").is_file():
        return f"there is no benchfile.py in {folder}"
    # Folders of one collection share files by links.
    home = folder.resolve().parent
    for item in folder.iterdir():
        if item.is_symlink() and not item.resolve().is_relative_to(home):
            return f"{item} is a link out of its collection"
    return None


class _Phase:
    """The talk with the process of a benchfile."""

    def __init__(
        self, phase: str, placement: Placement, wishes: Wishes, outcome: PhaseOutcome
    ) -> None:
        self._phase, self._placement = phase, placement
        self._wishes, self._outcome = wishes, outcome
        self._rest = b""
        self._done = False
        self._answers = -1

    def do(self) -> None:
        bench = self._placement.bench
        questions, questions_write = os.pipe()
        answers_read, self._answers = os.pipe()
        with tempfile.TemporaryDirectory(prefix="cbs-bench-") as temporary:
            file = Path(temporary) / "asked.json"
            file.write_text(as_json(self._asked()), encoding="utf-8")
            host = CommandLine(
                argv=tuple(host_command(questions_write, answers_read, file)),
                # As the guide says: from the benchmark's folder, in the current environment.
                cwd=str(bench.folder),
                env=host_environment(),
                tag=f"{bench.name}.{self._phase}.benchfile",
            )
            try:
                [ended] = execution.run(
                    [host],
                    # It writes nothing much: its commands are watched.
                    limits=Limits(
                        duration_s=_HOST_DURATION_S, network=True, disk=self._placement.base
                    ),
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
                Status.FAILED, f"benchfile.py ended with exit code {ended.code}{words}"
            )

    def _asked(self) -> dict[str, Any]:
        bench = self._placement.bench
        return {
            "phase": self._phase,
            "config": self._placement.config(self._wishes.variant),
            "gpus": [attrs.asdict(gpu) for gpu in gpus()],
            "per_gpu": bench.plan.per_gpu,
            "jobs": bench.plan.jobs,
            "arguments": dict(self._wishes.arguments),
        }

    def _limits(self, duration_s: float, *, network: bool) -> Limits:
        disk, reserve = self._placement.base, self._wishes.disk_reserve_bytes
        return Limits(
            duration_s=duration_s,
            network=network,
            disk=disk,
            disk_reserve_bytes=execution.disk_reserve_bytes(disk) if reserve is None else reserve,
            protect=self._wishes.protect,
        )

    def _take(self, piece: bytes) -> None:
        *lines, self._rest = (self._rest + piece).split(b"\n")
        for line in lines:
            try:
                told = json.loads(line)
                self._answer(told)
            except (ValueError, KeyError, TypeError) as error:
                self._outcome.fail(Status.FAILED, f"benchfile.py said something odd: {error!r}")

    def _answer(self, told: Mapping[str, Any]) -> None:
        kind = told["type"]
        if kind == "message":
            self._wishes.say(f"{self._placement.bench.name}: {told['text']}")
        elif kind == "execute":
            codes = self._execute([_Wanted(**item) for item in told["commands"]])
            os.write(self._answers, json.dumps({"codes": codes}).encode() + b"\n")
        elif kind in ("failed", "unsupported"):
            self._done = True
            status = Status.FAILED if kind == "failed" else Status.UNSUPPORTED
            self._outcome.fail(status, self._with_last_words(told["text"]), told.get("traceback"))
        elif kind == "done":
            self._done = True

    def _with_last_words(self, text: str) -> str:
        last = self._outcome.ended[-1] if self._outcome.ended else None
        if last is None or "exit code" not in text:
            return text
        why = last.reason or last.last_words
        return f"{text.removeprefix('CommandFailedError: ')}{f': {why}' if why else ''}"

    def _execute(self, wanted: "Sequence[_Wanted]") -> list[int]:
        running = self._phase == RUN
        wanted = _with_tags_of_their_own(wanted)
        sets = _cpu_sets(len(wanted)) if running else [()] * len(wanted)
        duration_s = self._placement.bench.max_duration_s if running else _HOST_DURATION_S
        try:
            commands = [self._command(item, own) for item, own in zip(wanted, sets, strict=True)]
        except venvs.VenvError as error:
            self._outcome.fail(Status.FAILED, str(error))
            return [1] * len(wanted)
        ended = execution.run(
            commands,
            limits=self._limits(duration_s, network=not running),
            log_dir=self._placement.log_dir,
            listen=self._wishes.listen,
            echo=self._wishes.echo,
        )
        # What only helps is of no interest, unless it fails.
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
            argv = venvs.install_command(placement.dirs["venv"], rest[1:])
            env = venvs.installer_environment()
        elif first == "pip-compile":
            argv = venvs.compile_command(placement.base, rest)
            env = venvs.installer_environment()
        elif found := shutil.which(first, path=env["PATH"]):
            argv[0] = found
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


@attrs.frozen(kw_only=True)
class _Wanted:
    """A command that a benchfile wants to be run."""

    argv: list[str]
    cwd: str
    env: dict[str, str]
    use_stdout: bool
    measured: bool
    tag: str
    devices: list[Any]


def _with_tags_of_their_own(wanted: Sequence[_Wanted]) -> list[_Wanted]:
    """Returns commands whose logs have different names."""
    tags = [item.tag for item in wanted]
    return [
        item if tags.count(item.tag) == 1 else attrs.evolve(item, tag=f"{item.tag}.{number}")
        for number, item in enumerate(wanted)
    ]


def _code(ended: Ended) -> int:
    if ended.reason:
        return 1
    # One that stopped because it had asked to be stopped did as it should.
    return 0 if ended.stopped else ended.code if ended.code is not None else 1


def _cpu_sets(count: int) -> list[tuple[int, ...]]:
    """Returns CPUs of their own for each process; none where there are fewer CPUs than processes.

    A lone process has all that we have.
    """
    usable = cpus.usable_cpus()
    if count <= 1 or count > len(usable):
        return [()] * count
    share = len(usable) // count
    return [tuple(usable[i * share : (i + 1) * share]) for i in range(count)]


def shell_environment(placement: Placement) -> dict[str, str]:
    """Returns the variables of a shell in the benchmark's environment."""
    dirs = {f"MILABENCH_DIR_{n.upper()}": str(path) for n, path in placement.dirs.items()}
    return placement.environment(
        {
            **dirs,
            "MILABENCH_DATA_DIR": str(placement.dirs["data"]),
            "MILABENCH_BASE": str(placement.base),
            "XDG_CACHE_HOME": str(placement.dirs["cache"]),
        }
    )
