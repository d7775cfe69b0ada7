"""The result of an exporter, and the field that carries exact results in foreign documents."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import attrs
import msgspec

from comparative_benchmark.reporting.formats.source import Part
from comparative_benchmark.reporting.history.portable import (
    OK,
    Contents,
    FormatError,
    PortableResult,
)

# A key that readers of the other formats ignore.
CARRIER = "common_benchmark_suite"
CARRIER_VERSION = 1


@attrs.frozen(kw_only=True)
class Exported:
    """Files to write, and remarks on data that the format could not represent.

    Attributes:
      files: contents by name; the empty name is the output file itself, others are relative to the
        output directory.
      remarks: sentences for the user.
    """

    files: Mapping[str, bytes]
    remarks: tuple[str, ...] = ()


Exporter = Callable[[Sequence[PortableResult]], Exported]


def carried(results: Iterable[PortableResult]) -> dict[str, Any]:
    """Returns the exact results as the value of `CARRIER`."""
    return {"version": CARRIER_VERSION, "results": [result.as_json() for result in results]}


def json_file(document: Any) -> bytes:
    """Returns a JSON file; NaN and infinity raise, because they are errors of this program."""
    text = json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False)
    return f"{text}\n".encode()


def json_line(value: Any) -> str:
    """Returns JSON in one line; equal values give equal text."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, sort_keys=True)


def unique(names: Iterable[str], format_name: str) -> None:
    """Raises if names are not unique.

    Raises:
      FormatError: two names are equal.
    """
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise FormatError(
                f"two results are named {name!r} in {format_name}; export the files separately, "
                "or one run with --run"
            )
        seen.add(name)


def remarks_on(results: Sequence[PortableResult], *held: str) -> tuple[str, ...]:
    """Returns remarks for the user on the extra fields of an export; `held` is added."""
    found = list(held)
    failed = [result for result in results if result.status != OK]
    if failed:
        found.append(
            f"{len(failed)} of {len(results)} results are not ok: they have a status but no time"
        )
    untimed = sum(result.status == OK and result.latency_ms is None for result in results)
    if untimed:
        found.append(f"{untimed} of {len(results)} results have no latency (compile only)")
    return tuple(found)


def one_run(results: Sequence[PortableResult], format_name: str) -> str | None:
    """Returns the run of the results, for formats with a single run; None if none is named.

    Raises:
      FormatError: there are several runs.
    """
    runs = sorted({result.run_id for result in results if result.run_id})
    if len(runs) > 1:
        raise FormatError(
            f"{format_name} can contain only one run, got {len(runs)}: {', '.join(runs)}. "
            "Choose one with --run"
        )
    return runs[0] if runs else None


class _Carrier(msgspec.Struct):
    version: int
    results: msgspec.Raw


def read_carrier(
    carrier: Part, faults: Callable[[Sequence[PortableResult]], Sequence[str | None]]
) -> Contents:
    """Returns the results that a document carries.

    Args:
      carrier: the value of `CARRIER` in the document.
      faults: returns for each result how it differs from the fields of the format; None if it does
        not. This detects numbers that someone has edited.

    Raises:
      FormatError: the carrier has another version or structure.
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
