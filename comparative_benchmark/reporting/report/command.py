"""`cbs report`: makes a page, Markdown and a chart from results files."""

import argparse
import contextlib
import datetime
import sys
from collections.abc import Iterator
from pathlib import Path

import attrs

from comparative_benchmark.reporting.report import inputs, markdown
from comparative_benchmark.reporting.report.inputs import ReportError
from comparative_benchmark.reporting.report.summary import Summary, summarize
from comparative_benchmark.reporting.report.trends import open_trends
from comparative_benchmark.results.codec import ResultsFileError
from comparative_benchmark.results.published import published
from comparative_benchmark.results.record import Document
from comparative_benchmark.terminal.options import EXIT_FAILED, EXIT_OK, UsageError
from openxla.benchmark import synonyms
from openxla.benchmark.extras import install_command
from openxla.benchmark.files import write_atomically
from openxla.benchmark.text import printable

_STDOUT = "-"
_EXTRAS = dict.fromkeys(("jinja2", "markupsafe", "matplotlib"), "report")
_EXTRAS |= dict.fromkeys(("sqlalchemy", "alembic"), "history")


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

    with _mistakes_as_usage_errors():
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
            _write(options.output, _page(summary, options.title, options.output))
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
            from comparative_benchmark.reporting.report import chart

            chart.save(summary, options.chart, title=options.title)
            say(f"chart: {options.chart}")
    return EXIT_FAILED if found.refused else EXIT_OK


def write_report(
    document: Document, path: Path, *, title: str, baseline: str | None, folder: Path | None
) -> None:
    """Writes the page of one document, or Markdown if the name of the file ends in `.md`.

    Names of hosts and folders are omitted, as in `cbs report`.

    Args:
      document: content of a results file.
      path: path of the file to write.
      folder: folder of the results file, for links to profiles; None if it is not in a file.
      title: heading of the page.
      baseline: competitor of the speed-ups; None for the default one.

    Raises:
      UsageError: there are no results, a package is missing, or the file cannot be written.
    """
    with _mistakes_as_usage_errors():
        found = inputs.merge([published(document)])
        if folder is not None:
            found = attrs.evolve(
                found, folders=dict.fromkeys((r.run_id for r in found.runs), folder)
            )
        summary = summarize(found, against=baseline)
        if path.suffix == ".md":
            _write(path, markdown.as_markdown(summary, title=title))
        else:
            _write(path, _page(summary, title, path))


def _page(summary: Summary, title: str, path: Path) -> str:
    # The other outputs need no template engine.
    from comparative_benchmark.reporting.report import page

    return page.render(summary, title=title, made=datetime.datetime.now(datetime.UTC), path=path)


@contextlib.contextmanager
def _mistakes_as_usage_errors() -> Iterator[None]:
    try:
        yield
    except (ReportError, ResultsFileError) as error:
        raise UsageError(str(error)) from error
    except ModuleNotFoundError as error:
        if error.name not in _EXTRAS:
            raise
        raise UsageError(
            f"{error.name} is not installed; run {install_command(_EXTRAS[error.name])}"
        ) from error


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


def _write(path: Path, text: str) -> None:
    """Writes a file atomically, so that readers never see a partial page."""
    try:
        write_atomically(path, text.encode(errors="backslashreplace"))
    except OSError as error:
        raise ReportError(f"{path} cannot be written: {error}") from error
