"""Writes a page or Markdown, and turns mistakes into usage errors."""

import contextlib
import datetime
from collections.abc import Iterator
from pathlib import Path

import attrs

from comparative_benchmark.errors import UsageError
from comparative_benchmark.reporting.report import inputs, markdown
from comparative_benchmark.reporting.report.inputs import ReportError
from comparative_benchmark.reporting.report.summary import Summary, summarize
from comparative_benchmark.results.published import published
from comparative_benchmark.results.record import Document
from comparative_benchmark.results.results_file import ResultsFileError
from openxla.benchmark.extras import install_command
from openxla.benchmark.files import write_atomically

_EXTRAS = dict.fromkeys(("jinja2", "markupsafe", "matplotlib"), "report")
_EXTRAS |= dict.fromkeys(("sqlalchemy", "alembic"), "history")


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
    with mistakes_as_usage_errors():
        found = inputs.merge([published(document)])
        if folder is not None:
            found = attrs.evolve(
                found, folders=dict.fromkeys((r.run_id for r in found.runs), folder)
            )
        summary = summarize(found, against=baseline)
        if path.suffix == ".md":
            write_file(path, markdown.as_markdown(summary, title=title))
        else:
            write_file(path, page_of(summary, title, path))


def page_of(summary: Summary, title: str, path: Path) -> str:
    """Returns the page; links in it are relative to its path."""
    # The other outputs need no template engine.
    from comparative_benchmark.reporting.report import page

    return page.render(summary, title=title, made=datetime.datetime.now(datetime.UTC), path=path)


@contextlib.contextmanager
def mistakes_as_usage_errors() -> Iterator[None]:
    """Raises `UsageError` for files that cannot be read or written, and for missing packages."""
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


def write_file(path: Path, text: str) -> None:
    """Writes a file atomically, so that readers never see a partial page."""
    try:
        write_atomically(path, text.encode(errors="backslashreplace"))
    except OSError as error:
        raise ReportError(f"{path} cannot be written: {error}") from error
