"""`cbs report`: makes a page, Markdown and a chart from results files."""

import argparse
import sys
from pathlib import Path

from comparative_benchmark.errors import EXIT_FAILED, EXIT_OK, UsageError
from comparative_benchmark.reporting.report import inputs, writing
from comparative_benchmark.reporting.report.summary import summarize
from comparative_benchmark.reporting.report.trends import open_trends
from comparative_benchmark.reporting.report.writing import (
    mistakes_as_usage_errors,
    page_of,
    write_file,
)
from openxla.benchmark import synonyms
from openxla.benchmark.text import printable

_STDOUT = "-"


def run(options: argparse.Namespace) -> int:
    """Writes the requested outputs; their content does not affect the exit code.

    Returns:
      0, or 1 if a file could not be read and was omitted.

    Raises:
      UsageError: no output was requested, or it cannot be written; the message gives the reason.
    """
    if not (options.output or options.markdown or options.chart):
        raise UsageError("nothing to write: give -o FILE.html, --markdown FILE|- or --chart FILE")
    baseline, since = _baseline(options)
    # Markdown on standard output is meant for a pipe: print nothing else there.
    to = sys.stderr if options.markdown == _STDOUT else sys.stdout

    def say(text: str) -> None:
        print(printable(text), file=to)

    with mistakes_as_usage_errors():
        found = inputs.read(options.results, with_host=options.with_host)
        for reason in found.refused:
            print(printable(f"cbs: not read: {reason}"), file=sys.stderr)
        with open_trends(options.history) as trends:
            summary = summarize(
                found,
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
            text = writing.as_markdown(summary, title=options.title)
            if options.markdown == _STDOUT:
                print(text, end="")
            else:
                write_file(Path(options.markdown), text)
                say(f"markdown: {options.markdown}")
        if options.chart:
            from comparative_benchmark.reporting.report import chart

            chart.save(summary, options.chart, title=options.title)
            say(f"chart: {options.chart}")
    return EXIT_FAILED if found.refused else EXIT_OK


def _baseline(options: argparse.Namespace) -> tuple[str | None, Path | None]:
    """Returns the baseline competitor, and the older results.

    `--baseline` used to take the older results; a file is still accepted.
    """
    given: str | None = options.baseline
    if given is None:
        return None, options.since
    if given.endswith(".json") or Path(given).is_file():
        return None, options.since or Path(given)
    try:
        return synonyms.competitor(given), options.since
    except ValueError as error:
        raise UsageError(f"--baseline: {error}") from error
