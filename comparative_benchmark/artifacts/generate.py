"""`cbs artifacts generate`: from options to directories of artifacts and an exit code."""

import argparse
import datetime
import difflib
import os
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from comparative_benchmark.terminal.options import (
    EXIT_FAILED,
    EXIT_MISSING,
    EXIT_OK,
    EXIT_WRONG,
    UsageError,
    count,
    seconds,
    size,
    spellings,
)
from openxla.benchmark.def_types import BenchmarkCase

_DATE_VARIABLE = "SOURCE_DATE_EPOCH"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    add = parser.add_argument
    add(
        *spellings("-name", "--model-name"),
        dest="name",
        help="regular expression that must match the whole name of a model",
    )
    add("--framework", help="framework of the models: pt, jax, tf or tflite (default: all)")
    add(
        *spellings("-o", "--output"),
        dest="output",
        type=Path,
        required=True,
        metavar="DIR",
        help="where each model gets a directory of its name",
    )
    add("--types", help="types of artifacts, e.g. stablehlo_mlir,onnx (default: all that can be)")
    add(
        "--jobs",
        type=count(1),
        default=1,
        metavar="N",
        help="exports of a model at once (default 1); each may take the memory of the model twice",
    )
    add("--resume", action="store_true", help="leave out models whose directory is there")
    add(
        *spellings("--record-types"),
        dest="record_types",
        action="store_true",
        help="write what the directories prove of their models into the suite's definitions",
    )
    add(
        "--suite",
        action="append",
        default=[],
        metavar="MODULE",
        help="a further module with ALL_BENCHMARKS",
    )
    add("--root-dir", "--root_dir", dest="root_dir", type=Path, help="as in `cbs run`")
    add("--threads", type=count(1), default=1, metavar="N", help="of each process (default 1)")
    add(
        "--timeout",
        type=seconds,
        default=1800.0,
        metavar="S",
        help="for each process of an export (default 1800)",
    )
    add(
        *spellings("--memory-limit"),
        dest="memory_limit",
        type=size,
        metavar="SIZE",
        help="memory of each process, e.g. 8G (default: what is available, less 1G)",
    )
    add("--verbose", action="store_true", help="print log files and tracebacks of failures")


def run(options: argparse.Namespace) -> int:
    """Generates what the options say; returns the exit code.

    Returns:
      0 if all went well, but for what is unsupported; 2 if a file gave a wrong output, 1 if an
      exporter failed: such a file is not there, and the manifest says why; 3 if no model is meant.

    Raises:
      UsageError: something that the user typed can not be.
    """
    from comparative_benchmark.artifacts.exporters import generation, recorded, selection
    from comparative_benchmark.artifacts.exporters.export_settings import ExportSettings
    from comparative_benchmark.artifacts.exporters.kinds import UnknownKindError
    from comparative_benchmark.artifacts.exporters.screen import Screen
    from openxla.benchmark.artifacts.manifest import read
    from openxla.benchmark.comparative_suite import catalog, exports
    from openxla.benchmark.root import ROOT_DIR_VARIABLE

    if options.root_dir:
        os.environ[ROOT_DIR_VARIABLE] = str(options.root_dir.absolute())
    screen = Screen(verbose=options.verbose)
    every = catalog.all_benchmarks(options.suite)
    of = selection.framework(options.framework) if options.framework else None
    try:
        cases = selection.cases(every, name=options.name, of=of)
    except re.error as error:
        raise UsageError(f"-name {options.name!r} is no regular expression: {error}") from error
    root = options.output.absolute()
    if not cases:
        screen.say(_no_match(options.name, every))
        return EXIT_MISSING
    meant, cases = cases, _left(cases, root, resume=options.resume)
    types = [item.strip() for item in (options.types or "").split(",") if item.strip()]
    with tempfile.TemporaryDirectory(prefix="cbs-generate-") as spare:
        logs = root / "logs" if options.verbose else Path(spare)
        settings = ExportSettings(run=_run_settings(options, logs), date=_date)
        subjects, failures = selection.subjects(cases, settings.run, screen.preparing)
        for model, ended in failures.items():
            screen.say(f"{model}: no inputs and truth, in {ended.phase}: {ended.reason}", "red")
        try:
            plans = [generation.plan(subject, types) for subject in subjects]
        except UnknownKindError as error:
            raise UsageError(f"--types: {error}") from error
        work = generation.Generation(root, settings, screen, jobs=options.jobs)
        outcomes = work.run(plans)
    if options.record_types:
        there = [case.model for case in meant if (root / case.model.name).is_dir()]
        proved = {model.name: recorded.entry(model, read(root / model.name)) for model in there}
        recorded.update(exports.PROVED_FILE, proved)
    screen.show(root, [subject.name for subject in subjects], outcomes)
    return exit_code([outcome.ending.value for outcome in outcomes], failed=bool(failures))


def exit_code(endings: Sequence[str], *, failed: bool) -> int:
    """Returns the exit code of exports that ended so, see `run`."""
    if "wrong_output" in endings:
        return EXIT_WRONG
    return EXIT_FAILED if failed or "failed" in endings else EXIT_OK


def _left(cases: Sequence[BenchmarkCase], root: Path, *, resume: bool) -> list[BenchmarkCase]:
    """Returns the cases whose model has no directory yet.

    Raises:
      UsageError: one has, and that was not expected.
    """
    there = [case.model.name for case in cases if (root / case.model.name).exists()]
    if there and not resume:
        raise UsageError(
            f"{root / there[0]} exists already: artifacts are written once; take another -o, "
            "remove it, or leave such models out by --resume"
        )
    return [case for case in cases if case.model.name not in there]


def _run_settings(options: argparse.Namespace, log_dir: Path) -> Any:
    from comparative_benchmark.machine.memory import default_limit_bytes
    from comparative_benchmark.runs.session import Limits
    from comparative_benchmark.runs.settings import RunSettings
    from openxla.benchmark import devices

    memory = options.memory_limit or default_limit_bytes() // options.jobs
    return RunSettings(
        device=devices.HOST_CPU,
        threads=options.threads,
        limits=Limits(deadline_s=options.timeout, memory_bytes=memory),
        log_dir=log_dir,
        # What is to be published anew must not come from what was published before.
        use_locks=False,
    )


def _date() -> str:
    """Returns the date that manifests tell: now, or that of the variable for repeatable builds."""
    given = os.environ.get(_DATE_VARIABLE)
    try:
        now = (
            datetime.datetime.now(datetime.UTC)
            if given is None
            else datetime.datetime.fromtimestamp(int(given), datetime.UTC)
        )
    except (ValueError, OverflowError, OSError) as error:
        raise UsageError(
            f"{_DATE_VARIABLE}={given!r} is no number of seconds since 1970"
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
