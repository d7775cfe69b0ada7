"""`cbs parity`: runs the matrix that the options describe."""

import argparse
import datetime
import json
import math
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import msgspec

from comparative_benchmark.analysis.machine.host import describe, git_revision, python_environment
from comparative_benchmark.backends.intermediates import RECORDERS
from comparative_benchmark.engine.settings import RunSettings, settings_of
from comparative_benchmark.engine.trial import Competitor, installed_competitors, parse_competitors
from comparative_benchmark.errors import EXIT_FAILED, EXIT_MISSING, EXIT_OK, EXIT_WRONG, UsageError
from comparative_benchmark.results import expected_failures
from comparative_benchmark.results.record import Status
from comparative_benchmark.sources.selection import find_device
from comparative_benchmark.studies.parity import grid, matrix
from comparative_benchmark.studies.parity.drift import Drift, Tracer
from comparative_benchmark.studies.parity.grid import Cell, CellResult, ParityFile, Row
from comparative_benchmark.studies.parity.matrix import Screen
from comparative_benchmark.studies.parity.runner import Runner, default_jobs
from comparative_benchmark.terminal.streams import without_secrets
from openxla.benchmark.artifacts import manifests, workload_store
from openxla.benchmark.comparative_suite import catalog
from openxla.benchmark.def_types import BenchmarkCase, DeviceSpec, ModelFrameworkType
from openxla.benchmark.files import temporary_folder


def run(options: argparse.Namespace) -> int:
    """Runs a matrix, prints it and returns the exit code.

    Returns:
      0 if every cell is ok, unsupported or expected; 2 if an output is wrong; 1 if another cell
      failed, or the list of expected failures is out of date; 3 if no cell could be run.

    Raises:
      UsageError: an option is invalid.
    """
    if options.resume and options.output is None:
        raise UsageError("--resume requires the earlier run's output file; pass it with -o")
    device = find_device(options.device)
    screen = Screen(verbose=options.verbose, keeps_logs=options.output is not None)
    cells = _cells(options, device, screen)
    entries = expected_failures.load(
        options.expected_failures or expected_failures.EXPECTED_FAILURES_FILE
    )
    with temporary_folder("parity-logs") as spare:
        settings = _settings(options, device, Path(spare))
        return _run(options, cells, entries, settings, screen)


def exit_code(results: Sequence[CellResult], judgement: expected_failures.Judgement) -> int:
    """Returns the exit code of a matrix; see `run`."""
    statuses = {r.status for r in results if _ending(r) not in judgement.expected}
    if Status.WRONG_OUTPUT in statuses:
        return EXIT_WRONG
    if statuses - {Status.OK, Status.UNSUPPORTED} or judgement.stale:
        return EXIT_FAILED
    return EXIT_OK if Status.OK in statuses or judgement.expected else EXIT_MISSING


def _run(
    options: argparse.Namespace,
    cells: Sequence[Cell],
    entries: Sequence[expected_failures.ExpectedFailure],
    settings: RunSettings,
    screen: Screen,
) -> int:
    device = settings.device.name
    jobs = options.jobs or default_jobs(settings.device.accelerator_type, options.memory_limit)
    with (
        screen.following(),
        ParityFile(
            options.output,
            command=[without_secrets(word) for word in sys.argv],
            execution_environment={
                "python_environment": python_environment(),
                "host": describe(
                    threads=settings.threads, cpus=settings.cpus, threads_from=settings.threads_from
                ),
                "git_revision": git_revision(),
                "jobs": jobs,
            },
            resume=options.resume,
        ) as file,
    ):
        settled = file.settled(device)
        pending = [cell for cell in cells if cell.trial is None or cell.key not in settled]
        runner = Runner(settings, screen, file.put, jobs=jobs, memory_bytes=options.memory_limit)
        by_key = settled | {result.key: result for result in runner.run(pending)}
        # Resumed results may have another label.
        results = [attrs.evolve(by_key[cell.key], label=cell.row.label) for cell in cells]
        judgement = expected_failures.judge(
            entries,
            [_ending(result) for result in results if result.case is not None],
            today=datetime.datetime.now(datetime.UTC).date(),
        )
        expected = {
            result.key: judgement.expected[_ending(result)].reason
            for result in results
            if _ending(result) in judgement.expected
        }
        # Known failures need no search for the layer that causes them.
        unexplained = [result for result in results if result.key not in expected]
        drifts = _drifts(options, cells, unexplained, runner, settings, screen)
        code = exit_code(results, judgement)
        file.finish(
            expected=expected,
            drift=[attrs.asdict(drift, value_serializer=_finite) for drift in drifts],
            counts=matrix.counts(results, expected),
            exit_code=code,
            device=device,
        )
    if options.json:
        shown = [attrs.evolve(r, expected=expected.get(r.key, msgspec.UNSET)) for r in results]
        print(json.dumps([_as_plain(result) for result in shown], indent=2))
        for complaint in judgement.complaints():
            screen.say(f"expected failures: {complaint}", style="red")
    else:
        screen.show(results, expected, judgement.complaints(), drifts, options.suite)
    if options.output:
        screen.say(f"matrix: {options.output}")
    return code


def _as_plain(result: CellResult) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(result)
    return {name: _finite(None, None, value) for name, value in plain.items()}


def _finite(_: Any, __: Any, value: Any) -> Any:
    """Returns None for numbers that JSON cannot represent, such as infinite differences."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _drifts(
    options: argparse.Namespace,
    cells: Sequence[Cell],
    results: Sequence[CellResult],
    runner: Runner,
    settings: RunSettings,
    screen: Screen,
) -> list[Drift]:
    """Traces implementations with wrong outputs; with `--drift`, all; with `--no-drift`, none."""
    if options.drift is False:
        return []
    rows: dict[str, Row] = {cell.row.label: cell.row for cell in cells}
    suspects: dict[str, set[str]] = {}
    for result in results:
        if result.status is Status.WRONG_OUTPUT:
            suspects.setdefault(result.label, set()).add(result.framework)
    asked = []
    for label, row in rows.items():
        frameworks = [f for f in row.cases if f.value in suspects.get(label, ())]
        if options.drift and not frameworks:
            frameworks = [f for f in row.cases if f.value in RECORDERS][0 if row.others else 1 :]
        if frameworks:
            asked.append((row, frameworks))
    artifacts = {
        row.workload.digest: runner.artifacts.get(row.workload.digest) or _stored(row)
        for row, _ in asked
    }
    return Tracer(settings, screen.say).drifts(asked, artifacts)


def _stored(row: Row) -> workload_store.WorkloadArtifacts | None:
    """Returns the stored artifacts of a workload, if any."""
    try:
        return workload_store.find(row.workload)
    except workload_store.ArtifactError:
        return None


def _cells(options: argparse.Namespace, device: DeviceSpec, screen: Screen) -> list[Cell]:
    every = manifests.with_urls(catalog.all_benchmarks(options.suite))
    try:
        selected = catalog.select(every, name=options.name, tags=options.tag)
    except re.error as error:
        raise UsageError(f"-name {options.name!r} is not a regular expression: {error}") from error
    frameworks = _frameworks(options.framework, every)
    rows = [
        attrs.evolve(
            row,
            cases={f: case for f, case in row.cases.items() if f in frameworks},
            others={**row.others, **{f: c for f, c in row.cases.items() if f not in frameworks}},
        )
        for row in grid.rows(selected, every)
    ]
    rows = [row for row in rows if row.cases]
    competitors = _competitors(options.backend, device, screen)
    if not rows or not competitors:
        raise UsageError("nothing to run: no workload is selected, or no backend is installed")
    return grid.cells(rows, grid.columns(frameworks, competitors), device)


def _frameworks(text: str | None, every: Sequence[BenchmarkCase]) -> list[ModelFrameworkType]:
    """Returns the frameworks of the columns: the given ones, or all frameworks with models."""
    known = list(dict.fromkeys(case.model.model_impl.framework_type for case in every))
    if text is None:
        return known
    by_name = {framework.value: framework for framework in known}
    asked = [name.strip() for name in text.split(",") if name.strip()]
    if unknown := [name for name in asked if name not in by_name]:
        raise UsageError(
            f"--framework: no models for {', '.join(unknown)}; choices are {', '.join(by_name)}"
        )
    return [by_name[name] for name in asked]


def _competitors(text: str | None, device: DeviceSpec, screen: Screen) -> list[Competitor]:
    if text is not None:
        return parse_competitors(text, device.accelerator_type)
    competitors, absent = installed_competitors(device.accelerator_type, variants=False)
    for name, absence in absent.items():
        screen.say(f"skipping {name}: {absence.sentence}", style="yellow")
    return competitors


def _settings(options: argparse.Namespace, device: DeviceSpec, spare: Path) -> RunSettings:
    output: Path | None = options.output
    if output is not None and output.is_dir():
        raise UsageError(f"-o {output} is a directory; choose a file")
    log_dir = output.absolute().with_suffix(".logs") if output else spare
    return settings_of(
        device,
        timeout_s=options.timeout,
        memory_bytes=options.memory_limit,
        threads=options.threads,
        log_dir=log_dir,
    )


def _ending(result: CellResult) -> expected_failures.Ending:
    return expected_failures.Ending(
        case_name=result.case or "",
        competitor=result.competitor,
        device=result.device,
        status=result.status.value,
    )
