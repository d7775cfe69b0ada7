"""Exact results that an earlier export put beside the fields of a format."""

from collections.abc import Callable, Sequence
from typing import Any

from comparative_benchmark.formats.exported import CARRIER, CARRIER_VERSION
from comparative_benchmark.formats.result import FormatError, Result
from comparative_benchmark.formats.source import Imported, Source, field


def is_carrier(document: Any) -> bool:
    """Tells whether a document of another format carries exact results."""
    return isinstance(document, dict) and isinstance(document.get(CARRIER), dict)


def read_carrier(
    source: Source, document: Any, faults: Callable[[Sequence[Result]], Sequence[str | None]]
) -> Imported:
    """Returns the results that a document carries.

    Args:
      source: the file.
      document: its content.
      faults: says of each result what is wrong when it is set beside the fields of the format;
        None where both say the same. A number that someone changed must not pass for a measured
        one.

    Raises:
      FormatError: the carrier is of another version or shape.
    """
    carrier = document[CARRIER]
    try:
        version = carrier.get("version")
        if version != CARRIER_VERSION:
            raise FormatError(f"version {version!r}; this program reads {CARRIER_VERSION}")
        items = field(carrier, "results", list)
    except FormatError as error:
        raise FormatError(f"{source.at(CARRIER)}: {CARRIER}: {error}") from error
    results: list[tuple[int, Result]] = []
    refused: list[str] = []
    for position, item in enumerate(items):
        try:
            results.append((position, Result.from_json(item)))
        except FormatError as error:
            refused.append(f"{source.at(CARRIER, 'results', position)}: {error}")
    kept = []
    found = faults([result for _, result in results])
    for (position, result), fault in zip(results, found, strict=True):
        if fault is None:
            kept.append(result)
        else:
            where = source.at(CARRIER, "results", position)
            refused.append(f"{where}: {result.name}: {fault}")
    return Imported(tuple(kept), tuple(refused))
