"""`cbs artifacts generate`: exports artifacts according to the options."""

import argparse
import datetime
import difflib
import os
import re
from collections.abc import Sequence
from pathlib import Path

from comparative_benchmark.maintenance.artifacts.exporters import generation, selection
from comparative_benchmark.maintenance.artifacts.exporters.kinds import UnknownKindError
from comparative_benchmark.maintenance.artifacts.exporters.outcomes import ExportSettings
from comparative_benchmark.maintenance.artifacts.exporters.screen import ExportScreen
from comparative_benchmark.terminal.options import (
    EXIT_FAILED,
    EXIT_MISSING,
    EXIT_OK,
    EXIT_WRONG,
    UsageError,
)
from comparative_benchmark.terminal.run_options import settings_of
from openxla.benchmark.artifacts.manifest import read
from openxla.benchmark.comparative_suite import catalog, exports
from openxla.benchmark.def_types import BenchmarkCase
from openxla.benchmark.devices import HOST_CPU
from openxla.benchmark.temporary import temporary_folder

_DATE_VARIABLE = "SOURCE_DATE_EPOCH"


def run(options: argparse.Namespace) -> int:
    """Generates the selected artifacts; returns the exit code.

    Returns:
      0 if nothing failed, apart from unsupported exports; 2 if a file gave a wrong output, 1 if an
      exporter failed (in both cases the manifest gives the reason instead of the file); 3 if no
      model is selected.

    Raises:
      UsageError: an option is invalid.
    """
    screen = ExportScreen(verbose=options.verbose)
    every = catalog.all_benchmarks(options.suite)
    of = selection.framework(options.framework) if options.framework else None
    try:
        cases = selection.cases(every, name=options.name, of=of)
    except re.error as error:
        raise UsageError(f"-name {options.name!r} is not a regular expression: {error}") from error
    root = options.output.absolute()
    if not cases:
        screen.say(_no_match(options.name, every))
        return EXIT_MISSING
    meant, cases = cases, _left(cases, root, resume=options.resume)
    types = [item.strip() for item in (options.types or "").split(",") if item.strip()]
    with (
        screen.following(),
        temporary_folder("generate") as spare,
    ):
        logs = root / "logs" if options.verbose else Path(spare)
        run_settings = settings_of(
            HOST_CPU,
            timeout_s=options.timeout,
            memory_bytes=options.memory_limit,
            threads=options.threads,
            processes=options.jobs,
            log_dir=logs,
            # New artifacts must not be created from published ones.
            use_locks=False,
        )
        settings = ExportSettings(run=run_settings, date=_date)
        subjects, failures = selection.subjects(cases, settings.run, screen.preparing)
        for model, ended in failures.items():
            screen.say(f"{model}: no inputs and truth (in {ended.phase}: {ended.reason})", "red")
        try:
            plans = [generation.plan(subject, types) for subject in subjects]
        except UnknownKindError as error:
            raise UsageError(f"--types: {error}") from error
        work = generation.Generation(root, settings, screen, jobs=options.jobs)
        outcomes = work.run(plans)
    if options.record_types:
        there = [case.model for case in meant if (root / case.model.name).is_dir()]
        proved = {model.name: selection.entry(model, read(root / model.name)) for model in there}
        selection.update(exports.PROVED_FILE, proved)
    screen.show(root, [subject.name for subject in subjects], outcomes)
    return exit_code([outcome.ending.value for outcome in outcomes], failed=bool(failures))


def exit_code(endings: Sequence[str], *, failed: bool) -> int:
    """Returns the exit code for the endings of exports, see `run`."""
    if "wrong_output" in endings:
        return EXIT_WRONG
    return EXIT_FAILED if failed or "failed" in endings else EXIT_OK


def _left(cases: Sequence[BenchmarkCase], root: Path, *, resume: bool) -> list[BenchmarkCase]:
    """Returns the cases whose model has no directory yet.

    Raises:
      UsageError: a directory exists, and `resume` is not set.
    """
    there = [case.model.name for case in cases if (root / case.model.name).exists()]
    if there and not resume:
        raise UsageError(
            f"{root / there[0]} exists already; choose another directory with -o, remove it, or "
            "skip existing models with --resume"
        )
    return [case for case in cases if case.model.name not in there]


def _date() -> str:
    """Returns the date for manifests: now, or as given by the variable for reproducible builds."""
    given = os.environ.get(_DATE_VARIABLE)
    try:
        now = (
            datetime.datetime.now(datetime.UTC)
            if given is None
            else datetime.datetime.fromtimestamp(int(given), datetime.UTC)
        )
    except (ValueError, OverflowError, OSError) as error:
        raise UsageError(
            f"{_DATE_VARIABLE}={given!r} is not a number of seconds since 1970-01-01"
        ) from error
    return now.isoformat(timespec="seconds")


def _no_match(name: str | None, every: Sequence[BenchmarkCase]) -> str:
    names = list(dict.fromkeys(case.model.name for case in every))
    letters = re.sub(r"[^A-Za-z0-9_-]", "", name or "")
    nearest = difflib.get_close_matches(letters, names, n=3, cutoff=0.3)
    lines = [f"no model is named {name!r} (the expression must match the whole name)"]
    if nearest:
        lines += ["nearest names:", *(f"  {item}" for item in nearest)]
    return "\n".join([*lines, "`cbs list` shows all"])
