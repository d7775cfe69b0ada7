"""`cbs history`: runs queries, prints results, and returns exit codes."""

import argparse
import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from comparative_benchmark.cli.options.results import FILTERS
from comparative_benchmark.errors import EXIT_FAILED, EXIT_MISSING, EXIT_OK, EXIT_WRONG, UsageError
from comparative_benchmark.reporting.writers import as_yaml, write_csv, write_parquet
from comparative_benchmark.results.results_file import refuse_results
from comparative_benchmark.terminal.screen import output_screen
from openxla.benchmark.files import new_file
from openxla.benchmark.installation import install_command
from openxla.benchmark.text import printable

try:
    from comparative_benchmark.reporting.history import output, queries, regressions, results_files
    from comparative_benchmark.reporting.history.database import Database, import_files
    from comparative_benchmark.reporting.history.findings import Kind, as_json, changed_text
    from comparative_benchmark.reporting.history.rows import COLUMNS, DamagedRowError
except ModuleNotFoundError as missing:
    raise UsageError(f"{missing.name} not found; run {install_command('history')}") from missing

# Fits a screen; not applied to output for programs.
_TABLE_LIMIT = 50
# Width of tables in a pipe, whose lines another program or a log reads.
_WIDTH = 220


def run(options: argparse.Namespace) -> int:
    """Runs a subcommand.

    Raises:
      UsageError: an argument is invalid, or the history cannot be used.
    """
    actions: dict[str, Callable[[argparse.Namespace, Database], int]] = {
        "import": _import,
        "query": _query,
        "ls": _list,
        "regressions": _regressions,
    }
    outputs = (getattr(options, name, None) for name in ("output", "yaml", "issue"))
    refuse_results(outputs, [options.db])
    try:
        database = Database(options.db, create=options.action == "import")
        with contextlib.closing(database):
            return actions[options.action](options, database)
    except DamagedRowError as error:
        raise UsageError(f"the history contains a damaged row: {error}") from error


def _import(options: argparse.Namespace, database: Database) -> int:
    """Returns 1 if something was refused; the rest is imported."""
    done = import_files(database, results_files.read, options.results)
    for sentence in done.refused:
        print(printable(f"cbs: refused: {sentence}"), file=sys.stderr)
    written = done.written
    print(
        f"{written.added} new and {written.known} known results from {done.files} "
        f"file{'' if done.files == 1 else 's'}, {len(done.refused)} refused: {database}"
    )
    return EXIT_FAILED if done.refused else EXIT_OK


def _query(options: argparse.Namespace, database: Database) -> int:
    limit = options.limit
    if options.format == "table" and limit is None and options.output is None:
        limit = _TABLE_LIMIT
    which = _filter(options, newest=limit)
    records = queries.records(database, which)
    if options.format == "parquet":
        if options.output is None:
            raise UsageError("Parquet cannot be printed; add -o FILE")
        try:
            with _replacing(options.output) as path:
                write_parquet(path, COLUMNS, records)
        except ModuleNotFoundError as error:
            raise UsageError(f"{error.name} not found; run {install_command('history')}") from error
        return EXIT_OK
    with _text_output(options.output) as file:
        if options.format == "csv":
            write_csv(file, COLUMNS, records)
        elif options.format == "json":
            output.write_json(records, file)
        else:
            output.print_records(records, output_screen(_WIDTH, file))
    if options.format == "table" and options.limit is None and options.output is None:
        total = queries.count(database, which)
        if total > _TABLE_LIMIT:
            print(
                f"showing the newest {_TABLE_LIMIT} of {total} results; use --limit N to show more"
            )
    return EXIT_OK


def _list(options: argparse.Namespace, database: Database) -> int:
    series = queries.series(database, _filter(options))
    if options.json:
        print(output.series_as_json(series))
    else:
        output.print_series(series, output_screen(_WIDTH))
        results = sum(item.results for item in series)
        print(f"trends: {len(series)}, results: {results}, database: {database}")
    return EXIT_OK


def _regressions(options: argparse.Namespace, database: Database) -> int:
    settings = regressions.Settings(
        window=options.window,
        thresholds={**regressions.THRESHOLDS, **dict(options.threshold)},
        count_unchanged=options.count_unchanged,
    )
    report = regressions.find_regressions(database, _filter(options), settings)
    counted = report.counted
    if options.yaml is not None:
        document = output.findings_document(counted, name=options.name, added=report.added)
        _write(options.yaml, as_yaml(document))
    if options.issue is not None:
        text = output.issue_text(
            counted, name=options.name, owners=options.owner, added=report.added
        )
        _write(options.issue, text)
        try:
            output.set_workflow_revision(counted)
        except OSError as error:
            raise UsageError(f"$GITHUB_ENV cannot be written: {error}") from error
    if options.json:
        print(_report_as_json(report))
    else:
        print(printable("\n".join(_report_lines(report))))
    kinds = {finding.kind for finding in counted}
    if kinds & {Kind.STEP, Kind.STATUS}:
        return EXIT_WRONG
    # An empty history is not a success.
    return EXIT_MISSING if kinds or not report.series else EXIT_OK


def _report_as_json(report: regressions.Report) -> str:
    return json.dumps(
        {
            "series": report.series,
            "judged": report.judged,
            "short": report.short,
            "noise_floor": dict(report.floor),
            "findings": [as_json(finding) for finding in report.findings],
            "added": [finding.name for finding in report.added],
        },
        indent=2,
        allow_nan=False,
    )


def _report_lines(report: regressions.Report) -> Iterator[str]:
    for finding in report.findings:
        yield f"{finding.kind.value}  {finding.name}"
        yield f"  {finding.what}"
        for label, night in (("last good", finding.last_good), ("first bad", finding.first_bad)):
            run_id = f", run {night.run_id}" if night.run_id else ""
            yield f"  {label}: {night.time:%Y-%m-%d %H:%M} UTC{run_id}"
        yield f"  changed: {changed_text(finding)}"
        if finding.withheld:
            yield f"  not counted: {finding.withheld}"
    for where, floor in report.floor.items():
        yield f"unchanged programs differ by up to {floor:.1%} ({where})"
    counts = {kind: sum(f.kind is kind for f in report.counted) for kind in Kind}
    withheld = len(report.findings) - len(report.counted)
    yield (
        f"trends: {report.series}; steps: {counts[Kind.STEP]}, newly failing: "
        f"{counts[Kind.STATUS]}, missing: {counts[Kind.MISSING]}, not counted: {withheld}"
        + (f"; trends too short to detect steps: {report.short}" if report.short else "")
    )


def _filter(options: argparse.Namespace, newest: int | None = None) -> queries.Filter:
    versions: dict[str, list[str]] = {}
    for name, version in options.package:
        versions.setdefault(name, []).append(version)
    given = {column: getattr(options, f"filter_{column}") for column in FILTERS}
    return queries.Filter(
        texts={column: patterns for column, patterns in given.items() if patterns},
        versions=versions,
        since=options.since,
        until=options.until,
        newest=newest,
    )


def _write(path: Path, text: str) -> None:
    with _text_output(path) as file:
        file.write(text)


@contextlib.contextmanager
def _text_output(path: Path | None) -> Iterator[IO[str]]:
    """Yields the file, which is written completely or not at all; the terminal for None."""
    if path is None:
        yield sys.stdout
        return
    with _replacing(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        yield file


@contextlib.contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """Yields a path next to the file, which replaces the file at the end."""
    try:
        with new_file(path) as temporary:
            yield temporary
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error}") from error
