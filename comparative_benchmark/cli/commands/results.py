"""`cbs compare` and `cbs show`: print results files in the terminal."""

import argparse
from pathlib import Path

from comparative_benchmark.api.results import as_json
from comparative_benchmark.errors import EXIT_OK, UsageError
from comparative_benchmark.reporting import history
from comparative_benchmark.reporting.report.inputs import ReportError
from comparative_benchmark.reporting.report.trends import (
    OWN_HISTORY,
    Trends,
    open_trends,
    usual_change,
)
from comparative_benchmark.results import journal
from comparative_benchmark.results.case import cases_of
from comparative_benchmark.results.comparing import compare as comparing
from comparative_benchmark.results.comparing.compare import usual_baseline
from comparative_benchmark.results.comparing.compare_remarks import remarks
from comparative_benchmark.results.comparing.roofs import known_ceilings
from comparative_benchmark.results.record import Document
from comparative_benchmark.results.results_file import ResultsFileError, read_document
from comparative_benchmark.terminal import compare_views
from comparative_benchmark.terminal.console import Console
from openxla.benchmark import synonyms


def compare(options: argparse.Namespace) -> int:
    """Prints the differences of two results files; returns the code of `compare.exit_code`.

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
        Console().say(f"without the history: {error}")
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
    """Prints the table of a results file; returns 0.

    Raises:
      UsageError: the file cannot be read.
    """
    document = read_document(options.results)
    # Ceilings of the measuring machine, if that was this one.
    ceilings = known_ceilings(document.benchmarks, document.execution_environment.host)
    cases = cases_of(document)
    if not cases:
        print(f"{options.results} has no results yet{_unfinished(options.results)}")
        return EXIT_OK
    baseline = options.baseline
    if baseline:
        try:
            baseline = synonyms.competitor(baseline)
        except ValueError as error:
            raise UsageError(f"--baseline: {error}") from error
    baseline = baseline or usual_baseline(cases)
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
    return f"; {len(entries)} processes of {trials} trials are kept: --resume continues with them"
