"""The formats by name; each is imported when needed."""

import importlib
from pathlib import Path
from typing import Any

import msgspec

from comparative_benchmark.reporting.formats import AUTO
from comparative_benchmark.reporting.formats.exported import Exporter
from comparative_benchmark.reporting.formats.source import Importer, Source, read_source
from comparative_benchmark.reporting.history.portable import Contents, FormatError

_EXPORTERS = {
    "torchbench": "torchbench:export",
    "oss-v3": "oss_v3:export",
    "google-benchmark": "google_benchmark:export",
    "pytest-benchmark": "pytest_benchmark:export",
    "asv": "asv:export",
    "csv": "tabular:export_csv",
    "parquet": "tabular:export_parquet",
    "junit": "junit:export",
}
# In the order in which `auto` tries them.
_IMPORTERS = {
    "oss-v3": ("oss_v3:read", "oss_v3:matches"),
    "torchbench": ("torchbench:read", "torchbench:matches"),
    "google-benchmark": ("google_benchmark:read", "google_benchmark:matches"),
    "openxla-suite": ("openxla_suite:read", "openxla_suite:matches"),
}


def exporter(name: str) -> Exporter:
    """Returns the exporter of a format of `EXPORTS`."""
    found: Exporter = _load(_EXPORTERS[name])
    return found


def importer(name: str) -> Importer:
    """Returns the importer of a format of `IMPORTS`; for `auto`, one that detects it."""
    if name == AUTO:
        return lambda source: importer(detect(source))(source)
    found: Importer = _load(_IMPORTERS[name][0])
    return found


def read_file(path: Path, name: str = AUTO) -> Contents:
    """Returns the content of a file in a format; an unreadable file gives one refusal."""
    try:
        source = read_source(path)
        kind = detect(source) if name == AUTO else name
        found = importer(kind)(source)
    except FormatError as error:
        return Contents(refused=(str(error),))
    results = [r if r.identity else msgspec.structs.replace(r, origin=kind) for r in found.results]
    return Contents(tuple(results), found.refused, found.skipped)


def detect(source: Source) -> str:
    """Returns the format of a file.

    Raises:
      FormatError: no format that can be imported fits, or the file is not JSON.
    """
    document = _first(source)
    if isinstance(document, dict) and "schema_version" in document and "runs" in document:
        raise FormatError(
            f"{source.name} is a results file of this suite; use `cbs history import {source.name}`"
        )
    for name, (_, matches) in _IMPORTERS.items():
        if _load(matches)(document):
            return name
    raise FormatError(
        f"{source.name}:1: unknown format; choose one with --format: {', '.join(_IMPORTERS)}"
    )


def _first(source: Source) -> Any:
    """Returns the document, or the first object of JSON lines."""
    try:
        return source.decoded(Any)
    except FormatError:
        for line in source.content.split(b"\n"):
            try:
                found = msgspec.json.decode(line)
            except (msgspec.DecodeError, RecursionError):
                continue
            # A line of an indented document may be valid JSON by chance, but is not a record.
            if isinstance(found, dict) and "metric" in found:
                return found
        raise


def _load(reference: str) -> Any:
    module, _, name = reference.partition(":")
    return getattr(importlib.import_module(f"{__package__}.{module}"), name)
