"""`cbs report`: from results files to a page, a Markdown text and a chart."""

import argparse
import datetime
import sys
from pathlib import Path

from comparative_benchmark.report import inputs, markdown
from comparative_benchmark.report.inputs import ReportError
from comparative_benchmark.report.summary import summarize
from comparative_benchmark.report.trend_sources import open_trends
from comparative_benchmark.results.codec import ResultsFileError
from comparative_benchmark.terminal.options import EXIT_FAILED, EXIT_OK, UsageError
from openxla.benchmark import synonyms
from openxla.benchmark.extras import install_command
from openxla.benchmark.files import write_atomically
from openxla.benchmark.text import printable

_STDOUT = "-"
_EXTRAS = dict.fromkeys(("jinja2", "markupsafe", "matplotlib"), "report")
_EXTRAS |= dict.fromkeys(("sqlalchemy", "alembic"), "history")


def run(options: argparse.Namespace) -> int:
    """Writes what the options ask for; what that shows does not change the exit code.

    Returns:
      0, or 1 where a file could not be read: the report is of the others.

    Raises:
      UsageError: nothing was asked for, or it cannot be made; the message says why.
    """
    if not (options.output or options.markdown or options.chart):
        raise UsageError("nothing to write: give -o FILE.html, --markdown FILE|- or --chart FILE")
    baseline, since = _baseline(options)
    # Markdown on standard output is for a pipe: nothing else may stand there.
    to = sys.stderr if options.markdown == _STDOUT else sys.stdout

    def say(text: str) -> None:
        print(printable(text), file=to)

    try:
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
            # Of no use to the other outputs, which need no template engine.
            from comparative_benchmark.report import page

            made = datetime.datetime.now(datetime.UTC)
            html = page.render(summary, title=options.title, made=made, path=options.output)
            _write(options.output, html)
            size = options.output.stat().st_size / 1e6
            say(f"page: {options.output} ({len(summary.judged)} results, {size:.1f} MB)")
        if options.markdown:
            text = markdown.as_markdown(summary, title=options.title)
            if options.markdown == _STDOUT:
                print(text, end="")
            else:
                _write(Path(options.markdown), text)
                say(f"markdown: {options.markdown}")
        if options.chart:
            from comparative_benchmark.report import chart

            chart.save(summary, options.chart, title=options.title)
            say(f"chart: {options.chart}")
    except (ReportError, ResultsFileError) as error:
        raise UsageError(str(error)) from error
    except ModuleNotFoundError as error:
        if error.name not in _EXTRAS:
            raise
        raise UsageError(
            f"{error.name} is not installed; run {install_command(_EXTRAS[error.name])}"
        ) from error
    return EXIT_FAILED if found.refused else EXIT_OK


def _baseline(options: argparse.Namespace) -> tuple[str | None, Path | None]:
    """Returns the competitor of the speed-ups, and the older results.

    `--baseline` used to take the older results; a file is still understood.
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


def _write(path: Path, text: str) -> None:
    """Writes a file whole or not at all: a reader never sees half of a page."""
    try:
        write_atomically(path, text.encode(errors="backslashreplace"))
    except OSError as error:
        raise ReportError(f"{path} cannot be written: {error}") from error
