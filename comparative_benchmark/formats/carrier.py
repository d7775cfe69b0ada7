"""Exact results that an earlier export put beside the fields of a format."""

from collections.abc import Callable, Sequence

import msgspec

from comparative_benchmark.formats.exported import CARRIER, CARRIER_VERSION
from comparative_benchmark.formats.source import Part
from comparative_benchmark.history.portable import Contents, FormatError, PortableResult


class _Carrier(msgspec.Struct):
    version: int
    results: msgspec.Raw


def read_carrier(
    carrier: Part, faults: Callable[[Sequence[PortableResult]], Sequence[str | None]]
) -> Contents:
    """Returns the results that a document carries.

    Args:
      carrier: what stands in it under the name `CARRIER`.
      faults: says of each result what is wrong when it is set beside the fields of the format;
        None where both say the same. A number that someone changed must not pass for a measured
        one.

    Raises:
      FormatError: the carrier is of another version or shape.
    """
    try:
        found = carrier.decoded(_Carrier)
        if found.version != CARRIER_VERSION:
            raise FormatError(f"unsupported version {found.version}, expected {CARRIER_VERSION}")
        items = list(carrier.source.part(found.results, carrier.offset).items())
    except FormatError as error:
        raise FormatError(f"{carrier}: {CARRIER}: {error}") from error
    results: list[tuple[Part, PortableResult]] = []
    refused: list[str] = []
    for part in items:
        try:
            results.append((part, part.decoded(PortableResult)))
        except FormatError as error:
            refused.append(f"{part}: {error}")
    kept = []
    told = faults([result for _, result in results])
    for (part, result), fault in zip(results, told, strict=True):
        if fault is None:
            kept.append(result)
        else:
            refused.append(f"{part}: {result.name}: {fault}")
    return Contents(tuple(kept), tuple(refused))
