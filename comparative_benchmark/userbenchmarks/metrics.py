"""Metrics files: `.userbenchmark/<name>/metrics-yyyyMMddHHmmss.json`."""

import re
from pathlib import Path
from typing import Any

import msgspec

from comparative_benchmark.formats.source import read_source
from comparative_benchmark.history.portable import FormatError

_FILE = re.compile(r"metrics-\d{14}\.json")
Document = dict[str, Any]


class _Metrics(msgspec.Struct):
    name: str
    environ: dict[str, Any]
    metrics: dict[str, Any]


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
      MetricsError: it cannot be read, is of another userbenchmark, or holds something that is
        neither a number nor a status.
    """
    try:
        source = read_source(path)
        metrics = source.decoded(_Metrics, "a metrics file").metrics
        document = source.decoded(Document)
    except FormatError as error:
        raise MetricsError(str(error)) from error
    for metric, value in metrics.items():
        if isinstance(value, bool) or not isinstance(value, (str, int, float)):
            raise MetricsError(f"{path}: not a metrics file: {metric!r} is {ascii(value)[:60]}")
    if name is not None and document["name"] != name:
        raise MetricsError(f"{path} belongs to userbenchmark {document['name']!r}, not {name!r}")
    return document
