"""Commands on results files: `cbs compare`, `show`, `report`, `export` and `import`."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from comparative_benchmark.api.results import as_json
from comparative_benchmark.errors import EXIT_FAILED, EXIT_MISSING, EXIT_OK, UsageError
from comparative_benchmark.reporting import history
from comparative_benchmark.reporting.formats.interface import (
    Exported,
    escaped,
    exporter,
    json_file,
    read_file,
)
from comparative_benchmark.reporting.history import results_files
from comparative_benchmark.reporting.history.rows import Contents, PortableResult
from comparative_benchmark.reporting.report import inputs
from comparative_benchmark.reporting.report.inputs import ReportError
from comparative_benchmark.reporting.report.summary import summarize
from comparative_benchmark.reporting.report.trends import (
    OWN_HISTORY,
    Trends,
    open_trends,
    usual_change,
)
from comparative_benchmark.reporting.report.writing import (
    as_markdown,
    mistakes_as_usage_errors,
    page_of,
    write_file,
)
from comparative_benchmark.results import journal
from comparative_benchmark.results.case import cases_of
from comparative_benchmark.results.comparing import compare as comparing
from comparative_benchmark.results.comparing.compare import competitor_among, usual_baseline
from comparative_benchmark.results.comparing.compare_remarks import remarks
from comparative_benchmark.results.comparing.roofs import known_ceilings
from comparative_benchmark.results.record import Document
from comparative_benchmark.results.results_file import (
    ResultsFileError,
    parse,
    read_content,
    read_document,
    refuse_results,
)
from comparative_benchmark.terminal import compare_views
from comparative_benchmark.terminal.console import Console
from openxla.benchmark.files import write_atomically
from openxla.benchmark.installation import install_command
from openxla.benchmark.text import printable

_STANDARD_OUTPUT = "-"
_LATEST = "latest"


def compare(options: argparse.Namespace) -> int:
    """Prints the differences between two results files; returns the code of `compare.exit_code`.

    Raises:
      UsageError: a file cannot be read.
    """
    old, new = map(read_document, (options.old, options.new))
    # The default history is optional: if it is missing or unreadable, compare without it.
    sources = options.history or ([OWN_HISTORY] if history.default_exists() else [])
    try:
        with open_trends(sources) as trends:
            comparisons = _comparisons(old, new, options, trends)
    except (ReportError, ResultsFileError, ModuleNotFoundError) as error:
        if options.history:
            raise UsageError(str(error)) from error
        Console().say(f"comparing without the history: {error}")
        comparisons = _comparisons(old, new, options, lambda _: ())
    summary = comparing.summarize_comparisons(comparisons)
    beside = remarks(old, new, comparisons)
    if options.json:
        print(compare_views.as_json(comparisons, summary, beside))
    elif options.markdown:
        print(compare_views.as_markdown(comparisons, summary, beside), end="")
    else:
        console = Console()
        console.comparison(comparisons, summary)
        console.lines(*beside.lines)
    return comparing.exit_code(summary)


def _comparisons(
    old: Document, new: Document, options: argparse.Namespace, trends: Trends
) -> list[comparing.Comparison]:
    return comparing.compare_documents(
        old,
        new,
        threshold=options.threshold,
        count_unchanged=options.count_unchanged,
        changed_models=options.changed_models,
        usual_change=usual_change(trends),
    )


def show(options: argparse.Namespace) -> int:
    """Prints the table for a results file; returns 0.

    Raises:
      UsageError: the file cannot be read.
    """
    document = read_document(options.results)
    # Ceilings are known only if this machine produced the results.
    ceilings = known_ceilings(document.benchmarks, document.execution_environment.host)
    cases = cases_of(document)
    if not cases and not options.json:
        print(f"{options.results} contains no results yet{_unfinished(options.results)}")
        return EXIT_OK
    baseline = usual_baseline(cases)
    if options.baseline and cases:
        names = list(dict.fromkeys(case.competitor for case in cases))
        baseline = competitor_among(options.baseline, names)
    if options.json:
        print(as_json(cases, baseline))
    else:
        Console().results(cases, baseline=baseline, ceilings=ceilings)
    return EXIT_OK


def _unfinished(results: Path) -> str:
    """Returns the number of processes left in an interrupted run, and the option to resume it."""
    runs, _ = journal.interrupted_runs(results, ())
    entries = [entry for run in runs if not run.undecided for entry in run.entries]
    if not entries:
        return ""
    trials = len({entry.key for entry in entries})
    return f"; saved processes: {len(entries)} (trials: {trials}); repeat the run with --resume"


def report(options: argparse.Namespace) -> int:
    """Writes the requested outputs; their content does not affect the exit code.

    Returns:
      0, or 1 if a file could not be read and was omitted.

    Raises:
      UsageError: no output was requested, or it cannot be written; the message gives the reason.
    """
    if not (options.output or options.markdown or options.chart):
        raise UsageError("nothing to write: pass -o FILE.html, --markdown FILE|- or --chart FILE")
    baseline, since = _report_baseline(options)
    outputs = (options.output, options.markdown, options.chart)
    refuse_results(outputs, [*options.results, since, *options.history])
    # Markdown on standard output is meant for a pipe: print nothing else there.
    to = sys.stderr if options.markdown == _STANDARD_OUTPUT else sys.stdout

    def say(text: str) -> None:
        print(printable(text), file=to)

    with mistakes_as_usage_errors():
        merged = inputs.read(options.results, with_host=options.with_host)
        for reason in merged.refused:
            print(printable(f"cbs: not read: {reason}"), file=sys.stderr)
        with open_trends(options.history) as trends:
            summary = summarize(
                merged,
                against=baseline,
                baseline_file=since,
                trends=trends,
                threshold=options.threshold,
            )
        if options.output:
            write_file(options.output, page_of(summary, options.title, options.output))
            size = options.output.stat().st_size / 1e6
            say(f"page: {options.output} ({len(summary.judged)} results, {size:.1f} MB)")
        if options.markdown:
            text = as_markdown(summary, title=options.title)
            if options.markdown == _STANDARD_OUTPUT:
                print(text, end="")
            else:
                write_file(Path(options.markdown), text)
                say(f"markdown: {options.markdown}")
        if options.chart:
            from comparative_benchmark.reporting.report import chart

            chart.save(summary, options.chart, title=options.title)
            say(f"chart: {options.chart}")
    return EXIT_FAILED if merged.refused else EXIT_OK


def _report_baseline(options: argparse.Namespace) -> tuple[str | None, Path | None]:
    """Returns the baseline competitor, and the older results.

    `--baseline` used to take the older results; a file is still accepted.
    """
    given: str | None = options.baseline
    if given and (given.endswith(".json") or Path(given).is_file()):
        return None, options.since or Path(given)
    return given, options.since


def export(options: argparse.Namespace) -> int:
    """Writes the export; returns 0, or 3 if a file or a result was omitted.

    Raises:
      UsageError: the format cannot distinguish the results, or the output cannot be written.
    """
    refuse_results([options.output], options.results)
    results, refused = _read_results(options.results, with_host=options.with_host)
    if refused and not results:
        raise UsageError(escaped("; ".join(refused)))
    for sentence in refused:
        print(f"cbs export: skipped: {escaped(sentence)}", file=sys.stderr)
    if options.run:
        results = of_run(results, options.run)
    if not results:
        raise UsageError("no results to export")
    exported = exporter(options.format)(results)
    try:
        written = write(exported, options.output)
    except OSError as error:
        raise UsageError(f"{options.output} cannot be written: {error}") from error
    for remark in exported.remarks:
        print(escaped(f"cbs export: {options.format}: {remark}"), file=sys.stderr)
    for path in written:
        print(escaped(f"cbs export: wrote {path} (results: {len(results)})"), file=sys.stderr)
    return EXIT_MISSING if refused else EXIT_OK


def of_run(results: Sequence[PortableResult], run: str) -> list[PortableResult]:
    """Returns the results of a run, by its identifier or `latest`.

    Raises:
      UsageError: the run does not exist.
    """
    began = {result.run_id: result.timestamp or "" for result in results}
    if run == _LATEST and began:
        run = str(max(began, key=lambda name: (began[name], name)))
    chosen = [result for result in results if result.run_id == run]
    if not chosen:
        raise UsageError(f"no results from run {run!r}; choices are {', '.join(map(str, began))}")
    return chosen


def write(exported: Exported, output: str) -> list[Path]:
    """Writes the files of an export, each atomically; returns their paths.

    Raises:
      OSError: a file cannot be written.
      UsageError: several files cannot go to standard output, or into a file; or the export cannot
        be merged with an existing file that is not JSON.
    """
    if list(exported.files) != [""]:
        return _write_directory(exported, output)
    if output == _STANDARD_OUTPUT:
        sys.stdout.buffer.write(exported.files[""])
        sys.stdout.buffer.flush()
        return []
    path = Path(output)
    if path.is_dir():
        raise UsageError(f"{output} is a directory; choose a file")
    write_atomically(path, exported.files[""])
    return [path]


def _write_directory(exported: Exported, output: str) -> list[Path]:
    directory = Path(output)
    if output == _STANDARD_OUTPUT or directory.is_file():
        raise UsageError("this format consists of several files; choose a directory with -o DIR")
    paths = []
    for name, content in exported.files.items():
        path, merged = directory / name, content
        if exported.merge and path.is_file():
            known = parse(read_content(path), str(path))
            merged = json_file(exported.merge(known, json.loads(content)))
        write_atomically(path, merged)
        paths.append(path)
    return paths


def _read_results(
    paths: Sequence[Path], *, with_host: bool
) -> tuple[list[PortableResult], list[str]]:
    results: list[PortableResult] = []
    refused: list[str] = []
    seen: set[str | None] = set()
    for path in paths:
        contents = results_files.read(path, with_host=with_host)
        refused += contents.refused
        # Ignore duplicates, e.g. in a file and its copy.
        results += [result for result in contents.results if result.identity not in seen]
        seen |= {result.identity for result in contents.results}
    return results, refused


def import_(options: argparse.Namespace) -> int:
    """Imports the files.

    Returns:
      0 if everything was read, 3 if some results were refused, 1 if nothing could be read.

    Raises:
      UsageError: the history cannot be opened or written.
    """
    if options.dry_run:
        return _dry_run(options)
    # SQL is imported only when needed.
    try:
        from comparative_benchmark.reporting.history.database import Database, import_files
    except ModuleNotFoundError as error:
        raise UsageError(f"{error.name} not found; run {install_command('history')}") from error
    database = Database(options.db)
    try:
        imported = import_files(
            database, lambda path: _read_foreign(path, options.format), options.files
        )
    finally:
        database.close()
    for sentence in imported.refused:
        _tell(f"refused: {sentence}")
    new, known = imported.written.added, imported.written.known
    _tell(
        f"{new} new and {known} known results from {imported.files} "
        f"file{'' if imported.files == 1 else 's'}: {database}"
    )
    return _exit_code(new + known, len(imported.refused))


def _dry_run(options: argparse.Namespace) -> int:
    read = refused = 0
    for path in options.files:
        contents = _read_foreign(path, options.format)
        for sentence in contents.refused:
            _tell(f"refused: {sentence}")
        for result in contents.results:
            print(json.dumps(result.as_json(), ensure_ascii=False, allow_nan=False))
        read += len(contents.results)
        refused += len(contents.refused)
    _tell(f"results read: {read}; none stored")
    return _exit_code(read, refused)


def _read_foreign(path: Path, name: str) -> Contents:
    contents = read_file(path, name)
    if contents.skipped:
        _tell(f"{path}: skipped configurations that are marked as not run: {contents.skipped}")
    return contents


def _exit_code(read: int, refused: int) -> int:
    return EXIT_OK if not refused else EXIT_MISSING if read else EXIT_FAILED


def _tell(sentence: str) -> None:
    print(f"cbs import: {escaped(sentence)}", file=sys.stderr)
