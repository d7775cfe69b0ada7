"""`python -m gpu_check`, started by `scripts/gpu_check.sh` through `bootstrap`."""

import argparse
import contextlib
import io
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NoReturn

import attrs

from comparative_benchmark.analysis.machine import other_processes
from comparative_benchmark.backends.missing_packages import is_installed
from comparative_benchmark.results.results_file import write_atomically
from gpu_check import observations, summary
from gpu_check.bootstrap import CHECKOUT, WORK_VARIABLE
from gpu_check.observations import Ending, Observations, Outcome
from gpu_check.steps import LIMIT_VARIABLE, MODULES, Machine, Step, all_steps
from openxla.benchmark import files
from openxla.benchmark.installation import ROOT_DIR_VARIABLE

EXIT_OK, EXIT_FAILED, EXIT_WRONG, EXIT_INTERRUPTED = 0, 1, 2, 130
# Seconds reserved for the page and the archive.
_RESERVE_S = 25.0
_LONGEST_LOG_BYTES = 300_000
# With fewer CPUs, parallel steps only slow each other down.
_FEWEST_CPUS_FOR_PARALLEL_STEPS = 8
# A step with less time left is not started.
_SHORTEST_S = 15.0
# Seconds in which an interrupted command can save its results.
_GRACE_S = 10.0
_MARK = "CBS_GPU_CHECK_STEP"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the check.

    Returns:
      0 if every step that ran is ok, 2 if an output was wrong, 1 if there are other findings, 130
      if interrupted.
    """
    scratch = Path(os.environ[WORK_VARIABLE])
    try:
        return _check(_parser().parse_args(arguments), scratch)
    finally:
        # Packages, gigabytes of checkpoints, and files of the steps.
        shutil.rmtree(scratch, ignore_errors=True)


def _check(options: argparse.Namespace, scratch: Path) -> int:
    started = time.monotonic()
    output = options.output.absolute()
    output.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault(ROOT_DIR_VARIABLE, str(scratch / "root"))
    programs = options.wheels / "programs" if options.wheels else None
    machine = Machine(
        device=options.device,
        output=output,
        scratch=scratch,
        modules=frozenset(name for name in MODULES if is_installed(name)),
        programs=programs if programs and programs.is_dir() else None,
    )
    steps = _selected(all_steps(machine), options.steps)
    # Results of an earlier check would look like this check's results.
    for name in (*observations.FILES, "page.html"):
        (output / name).unlink(missing_ok=True)

    def save() -> Observations:
        seen = observations.collect(machine, driver.outcomes, started=started)
        write_atomically(output / "checks.json", seen.document)
        files.write_atomically(output / "summary.md", summary.as_markdown(seen))
        _archive(scratch, output / "logs.tar.xz")
        return seen

    deadline = started + 60 * options.minutes - _RESERVE_S
    driver = Driver(machine, deadline=deadline, save=save, log=_log)
    is_interrupted = False
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        driver.run(steps)
    except KeyboardInterrupt:
        _log("interrupted; finished results are kept")
        is_interrupted = True
    _write_page(output)
    seen = save()
    for finding in seen.findings:
        _log(f"FINDING: {finding}")
    _log(f"summary: {output / 'summary.md'}")
    if is_interrupted:
        return EXIT_INTERRUPTED
    if seen.wrong_outputs:
        return EXIT_WRONG
    return EXIT_FAILED if seen.findings else EXIT_OK


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gpu_check.sh",
        description="Check the suite on a GPU: correct outputs, plausible times, and faults that "
        "affect only their own trial. Write a few small files to one directory.",
    )
    default = os.environ.get("OUT") or CHECKOUT / "results" / "gpu"
    parser.add_argument(
        "--output",
        type=Path,
        default=Path(default),
        help="directory to write to (default: $OUT, or results/gpu)",
    )
    parser.add_argument(
        "--device",
        default="host-gpu",
        choices=["host-gpu", "host-cpu"],
        help="device to check; host-cpu rehearses the same steps with tiny models, without a GPU",
    )
    parser.add_argument(
        "--minutes", type=float, default=8.0, help="time limit in minutes (default: %(default)g)"
    )
    parser.add_argument("--steps", help="run only these steps, e.g. matrix,faults (default: all)")
    parser.add_argument("--wheels", type=Path, help="directory that gpu_wheels.sh wrote")
    return parser


def _selected(steps: Sequence[Step], option: str | None) -> list[Step]:
    if option is None:
        return list(steps)
    names = [name.strip() for name in option.split(",") if name.strip()]
    known = [step.name for step in steps]
    if unknown := [name for name in names if name not in known]:
        raise SystemExit(
            f"--steps: unknown step {', '.join(unknown)}; choices are {', '.join(known)}"
        )
    return [step for step in steps if step.name in names]


class Driver:
    """Runs steps in order until all are done or the time is up.

    Attributes:
      outcomes: of the steps so far, in the order in which they ended.
    """

    def __init__(
        self,
        machine: Machine,
        *,
        deadline: float,
        save: Callable[[], object],
        log: Callable[[str], None],
    ) -> None:
        """Starts nothing.

        Args:
          machine: the machine and its folders.
          deadline: `time.monotonic()` at which the last step must have ended.
          save: called after each step, whose files are then in the output folder.
          log: called with progress messages.
        """
        self.outcomes: list[Outcome] = []
        self._machine = machine
        self._deadline = deadline
        self._save = save
        self._log = log
        self._logs = machine.scratch / "logs"
        self._stopped = threading.Event()
        self._running: set[subprocess.Popen[bytes]] = set()

    def run(self, steps: Sequence[Step]) -> None:
        """Runs the steps; consecutive untimed ones in parallel if there are enough CPUs."""
        self._logs.mkdir(parents=True, exist_ok=True)
        for group in self._groups(steps):
            if len(group) == 1:
                self._finish(self._run(group[0]))
                continue
            # Workers die with the thread that started them, so threads last as long as steps.
            with ThreadPoolExecutor(len(group)) as pool:
                try:
                    for outcome in pool.map(self._run, group):
                        self._finish(outcome)
                except BaseException:
                    self._stop()  # the pool waits for its threads, which wait for their commands
                    raise

    def _groups(self, steps: Sequence[Step]) -> Iterator[list[Step]]:
        parallel = self._machine.cpus >= _FEWEST_CPUS_FOR_PARALLEL_STEPS
        group: list[Step] = []
        for step in steps:
            if group and not (parallel and step.untimed and group[-1].untimed):
                yield group
                group = []
            group.append(step)
        if group:
            yield group

    def _stop(self) -> None:
        """Ends the commands of all threads, and prevents new ones."""
        self._stopped.set()
        for process in tuple(self._running):
            _end(process)

    def _finish(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)
        reason = f": {outcome.reason}" if outcome.reason else ""
        self._log(f"{outcome.step}: {outcome.ending.value}, {outcome.seconds:.0f} s{reason}")
        self._save()

    def _run(self, step: Step) -> Outcome:
        outcome = Outcome(step=step.name, title=step.title, ending=Ending.NOT_RUN)
        if missing := [name for name in step.needs if not self._machine.has(name)]:
            return attrs.evolve(outcome, reason=f"{', '.join(missing)} not installed")
        started = time.monotonic()
        limit_s = min(step.limit_s, self._deadline - started)
        if limit_s < min(_SHORTEST_S, step.limit_s):
            return attrs.evolve(outcome, reason="no time left")
        self._log(f"{step.name}: {step.title} (at most {limit_s:.0f} s) ...")
        codes: list[int] = []
        code: int | None = 0
        for command in step.command_lines():
            code = self._command(step, command, limit_s - (time.monotonic() - started))
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
        """Returns the exit code of a command; None if it had to be stopped.

        The code of a missing program is 127, as in a shell.
        """
        if self._stopped.is_set():
            return None
        mark = uuid.uuid4().hex
        limit_s = max(limit_s, 0.0)
        with (self._logs / f"{step.name}.log").open("ab") as log:
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
                    env={**os.environ, **step.variables, _MARK: mark, LIMIT_VARIABLE: str(limit_s)},
                )
            except OSError as error:
                log.write(f"{error}\n".encode())
                return 127
            self._running.add(process)
            try:
                if self._stopped.is_set():  # `_stop` ran before the process was in the set
                    return None
                return process.wait(timeout=limit_s)
            except subprocess.TimeoutExpired:
                return None
            finally:
                self._running.discard(process)
                _end(process)
                # Workers have separate process groups, and must not outlive the step.
                other_processes.kill_marked(_MARK, mark)

    def _collect(self, step: Step) -> None:
        """Copies a step's files to the output folder; readers see whole files only."""
        for name in step.writes:
            made = self._machine.scratch / name
            if made.is_file():
                with files.new_file(self._machine.output / name) as draft:
                    shutil.copyfile(made, draft)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Interrupts a command like Ctrl-C, so that it saves its results; kills it after a while."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=_GRACE_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _write_page(output: Path) -> None:
    """Writes the report of the races; the other results do not depend on it."""
    if not (output / "races.json").exists():
        return
    command = [sys.executable, "-P", "-m", "comparative_benchmark", "report"]
    command += [str(output / "races.json"), "-o", str(output / "page.html"), "--title", "GPU check"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except subprocess.TimeoutExpired:
        _log("no report page: it took longer than 60 s")
        return
    if done.returncode:
        _log(f"no report page: {done.stderr.strip() or done.returncode}")


def _archive(scratch: Path, path: Path) -> None:
    """Packs all logs into one file, and only the end of long logs."""
    with files.new_file(path) as draft, tarfile.open(draft, "w:xz", preset=3) as archive:
        for log in sorted(scratch.rglob("*.log")):
            with log.open("rb") as file:
                file.seek(max(0, log.stat().st_size - _LONGEST_LOG_BYTES))
                content = file.read()
            entry = tarfile.TarInfo(str(log.relative_to(scratch)))
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))


def _log(message: str) -> None:
    print(f"[{time.strftime('%H:%M:%S')}] {message}", file=sys.stderr, flush=True)


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    raise SystemExit(main())
