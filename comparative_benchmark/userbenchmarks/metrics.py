"""Metrics files: `.userbenchmark/<name>/metrics-yyyyMMddHHmmss.json`."""

import re
from pathlib import Path
from typing import Any

from comparative_benchmark.formats.result import FormatError, number
from comparative_benchmark.formats.source import field, read_source

_FILE = re.compile(r"metrics-\d{14}\.json")
Document = dict[str, Any]


class MetricsError(ValueError):
    """A metrics file is damaged; the message names the file and what is wrong."""


def metrics_files(folder: Path) -> list[Path]:
    """Returns the metrics files of a folder, the oldest first."""
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if _FILE.fullmatch(path.name))


def read_metrics(path: Path, name: str | None = None) -> Document:
    """Returns a metrics document.

    Args:
      path: of the file.
      name: of the userbenchmark that it must be of; None for any.

    Raises:
      MetricsError: it can not be read, is of another userbenchmark, or holds something that is
        neither a number nor a status.
    """
    try:
        source = read_source(path)
        document = source.json()
        try:
            _check(document)
        except FormatError as error:
            raise FormatError(f"{path}: no metrics file: {error}") from error
    except FormatError as error:
        raise MetricsError(str(error)) from error
    if name is not None and document["name"] != name:
        raise MetricsError(f"{path}: of the userbenchmark {document['name']!r}, not {name!r}")
    found: Document = document
    return found


def _check(document: Any) -> None:
    field(document, "name", str)
    field(document, "environ", dict)
    for metric, value in field(document, "metrics", dict).items():
        if not isinstance(value, str):
            number(f"metric {metric!r}", value)
