"""Exports one result of a results file as a directory that runs without the suite."""

import contextlib
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs

from comparative_benchmark.analysis.machine.host import default_threads, usable_cpus
from comparative_benchmark.api import recorded_trials
from comparative_benchmark.backends.api import ModelDefinition
from comparative_benchmark.backends.exported_programs import Exported
from comparative_benchmark.engine.preparation import Preparation
from comparative_benchmark.engine.session import SessionEnded, call_function
from comparative_benchmark.engine.settings import RunSettings, settings_of
from comparative_benchmark.engine.trial import Trial
from comparative_benchmark.errors import EXIT_FAILED, EXIT_OK, UsageError
from comparative_benchmark.results.case import Case
from comparative_benchmark.results.record import Document, Status
from comparative_benchmark.studies.reproduce import writing
from comparative_benchmark.studies.reproduce.writing import Outcome
from comparative_benchmark.terminal.console import Console
from openxla.benchmark.artifacts import array_files
from openxla.benchmark.files import temporary_folder

_EXPORT = "comparative_benchmark.backends.exported_programs:export"
# Maximum lines of run.py's output in the README.
_CHECK_LINES = 20
# Worker variables that contain local paths, or have no meaning outside a run.
_PLACES = ("{work_dir}", "{cache_dir}")


@attrs.frozen
class _Made:
    """See `exported_programs.export`."""

    exported: Exported
    versions: dict[str, str]


def reproduce(
    document: Document,
    *,
    case: str,
    competitor: str | None,
    device: str | None,
    suites: Sequence[str],
    recorded_python: bool,
    output: Path | None,
    check: bool,
    timeout_s: float,
    memory_bytes: int | None,
) -> int:
    """Creates a reproducer of one result and prints its path.

    Args:
      document: content of a results file.
      case: name of the case.
      competitor: its competitor, see `recorded_trials.find`.
      device: its device.
      suites: suites of others that may define the case.
      recorded_python: whether to use the interpreter that the file records.
      output: directory to create; None for one named after the result.
      check: whether to run the reproducer once.
      timeout_s: time limit of each worker, and of the check.
      memory_bytes: memory limit of each worker; None for the memory that is available.

    Returns:
      0 if the directory was created; 1 if it was created, but the program of a measured result can
      no longer be exported.

    Raises:
      UsageError: the result is missing or ambiguous, the directory is in use, or inputs and
        expected outputs cannot be computed.
      DefinitionError: see `catalog`.
    """
    recorded = recorded_trials.find(document, case, competitor=competitor, device=device)
    trial = recorded_trials.trial_of(recorded, suites, run_recorded_python=recorded_python)
    target = _target(output, trial)
    console = Console()
    with console.following(), _built(target) as directory, temporary_folder("repro") as scratch:
        settings = settings_of(
            trial.device,
            timeout_s=timeout_s,
            memory_bytes=memory_bytes,
            threads=min(recorded.threads or default_threads().number, usable_cpus()),
            log_dir=Path(scratch) / "logs",
        )
        preparation = Preparation(settings, console.preparing)
        preparation.run([trial])
        if failure := preparation.failures.get(trial.case.name):
            raise UsageError(
                f"{trial.case.name}: inputs and expected outputs cannot be created "
                f"({failure.status.value} in {failure.phase}: {failure.reason}), so outputs cannot "
                "be checked; for details, run the case with `cbs run`"
            )
        trial = attrs.evolve(trial, noise=preparation.noise_of(trial))
        writing.write_data(directory, trial, preparation.artifacts[trial.workload.digest])
        console.say(f"exporting  {trial}")
        outcome = _export(directory, trial, settings, Path(scratch))
        writing.write_scripts(directory, recorded, outcome)
        checked = None
        if check and outcome.exported:
            console.say(f"running    {trial}")
            checked = _check(directory, trial, timeout_s)
        writing.write_readme(directory, trial, recorded, outcome, check=checked)
    return _report(console, target, recorded, outcome, checked)


def _target(asked: Path | None, trial: Trial) -> Path:
    """Returns the path of the directory.

    Raises:
      UsageError: the path is a file, or a directory that is not empty.
    """
    name = re.sub(r"[^\w.+-]+", "-", f"repro-{trial.case.model.name}-{trial.competitor}")
    target = (asked or Path(name)).absolute()
    if target.is_dir() and any(target.iterdir()):
        raise UsageError(f"{target} is not empty; choose another directory with -o")
    if target.exists() and not target.is_dir():
        raise UsageError(f"{target} is not a directory; choose another path with -o")
    return target


@contextlib.contextmanager
def _built(target: Path) -> Iterator[Path]:
    """Provides a temporary directory; renames it when complete, or removes it on failure.

    Raises:
      UsageError: it cannot be created, or its target has been created in the meantime.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    except OSError as error:
        raise UsageError(f"{target} cannot be created: {error}") from error
    try:
        yield partial
        partial.chmod(0o755)
        try:
            partial.rename(target)  # succeeds if the target is an empty directory or does not exist
        except OSError as error:
            raise UsageError(f"{target} cannot be created: {error}") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _export(directory: Path, trial: Trial, settings: RunSettings, scratch: Path) -> Outcome:
    """Exports in a worker; errors and crashes become part of the outcome."""
    backend = trial.competitor.backend
    work_dir = scratch / "work"
    work_dir.mkdir()
    task: dict[str, Any] = {
        "reproducer": backend.reproducer,
        "context": {
            "compiler": trial.competitor.compiler.name,
            "options": list(trial.competitor.options),
            "device": trial.device_fields,
            "threads": settings.threads,
        },
        "definition": attrs.asdict(ModelDefinition.of(trial.case.model)),
    }
    variables = settings.environment(backend, work_dir, work_dir)
    told = {
        name: variables[name]
        for name, template in backend.environment.items()
        if not any(place in template for place in _PLACES)
    }
    described = {**task, "environment": told}
    arguments = {
        **task,
        "context": {**task["context"], "work_dir": str(work_dir)},
        "inputs": [str(path) for path in array_files.numbered(directory / "inputs", "input")],
        "directory": str(directory),
    }
    try:
        with settings.open_session(
            backend,
            trial.competitor.environment,
            work_dir=work_dir,
            cache_dir=work_dir,
            log_file=settings.log_dir / "export.log",
        ) as worker:
            value = call_function(worker, _EXPORT, arguments, _Made)
    except SessionEnded as ended:
        phase = "export" if ended.phase == "call" else ended.phase
        told_as = SessionEnded(ended.status, phase, ended.reason, ended.report)
        return Outcome(exported=None, versions={}, ended=told_as, task=described)
    return Outcome(exported=value.exported, versions=value.versions, ended=None, task=described)


def _check(directory: Path, trial: Trial, timeout_s: float) -> str:
    """Runs a copy of the reproducer in the environment that exported it; returns its output."""
    environment = trial.competitor.environment
    python = environment.python if environment else sys.executable
    with temporary_folder("repro-check") as scratch:
        copy = Path(scratch) / "copy"
        shutil.copytree(directory, copy)
        try:
            done = subprocess.run(
                [python, "run.py"],
                cwd=copy,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                timeout=timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"timed out after {timeout_s:g} s"
    lines = done.stdout.replace(scratch, ".").strip().splitlines()[-_CHECK_LINES:]
    return "\n".join([*lines, f"exit code {done.returncode}"])


def _report(
    console: Console, target: Path, recorded: Case, outcome: Outcome, check: str | None
) -> int:
    """Prints a summary, and returns the exit code."""
    console.say(f"recorded   {writing.summary(recorded)}")
    if check:
        console.say("here       " + " | ".join(check.splitlines()[-3:]))
    if outcome.exported is not None:
        print(target)
        return EXIT_OK
    if (ended := outcome.ended) is not None:
        console.say(
            f"no program exported: {ended.status.value} in {ended.phase}: {ended.reason}",
            style="yellow",
        )
    print(target)
    return EXIT_OK if recorded.status not in (Status.OK, Status.UNSTEADY) else EXIT_FAILED
