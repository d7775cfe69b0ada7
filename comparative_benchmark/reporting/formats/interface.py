"""The interface of formats: foreign files, exported files, and the formats by name.

Foreign JSON is validated by type, with line numbers for messages. Exported documents carry exact
results in a separate field. Each format is imported when needed.
"""

import importlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import attrs
import msgspec
from msgspec import Raw
from msgspec.structs import replace

from comparative_benchmark.reporting.formats import AUTO
from comparative_benchmark.reporting.history.rows import OK, Contents, FormatError, PortableResult

T = TypeVar("T")

_LARGEST_BYTES = 2 * 2**30
_LARGEST = 1e300
# A string, or the constants that some programs write for values that JSON lacks.
_NOT_A_NUMBER = re.compile(rb'("(?:[^"\\]|\\.)*")|-?(?:NaN|Infinity)')
_BYTE = re.compile(r"\(byte (\d+)\)")


@attrs.frozen
class Part:
    """A part of a file; its text is `file:line`."""

    source: "Source"
    content: bytes
    offset: int

    def __str__(self) -> str:
        line = self.source.content.count(b"\n", 0, self.offset) + 1
        return f"{self.source.name}:{line}"

    def decoded(self, kind: type[T]) -> T:
        """Returns the part as an object of a class.

        Raises:
          FormatError: it does not fit; the message names the field, but not the line.
        """
        try:
            return msgspec.json.decode(self.content, type=kind)
        except RecursionError as error:
            raise FormatError("nested too deeply") from error
        except msgspec.DecodeError as error:
            raise FormatError(str(error)) from error

    def items(self) -> Iterator["Part"]:
        """Yields the parts of a list, or the values of an object.

        Raises:
          FormatError: it is neither a list nor an object.
        """
        items: Any = self.decoded(list[Raw] | dict[str, Raw])  # type: ignore[arg-type]  # a union
        offset = self.offset
        for item in items.values() if isinstance(items, dict) else items:
            part = self.source.part(item, offset)
            yield part
            offset = part.offset + len(part.content)


def _with_null(content: bytes) -> bytes:
    if b"NaN" not in content and b"Infinity" not in content:
        return content
    return _NOT_A_NUMBER.sub(lambda match: match[1] or b"null", content)


@attrs.frozen
class Source:
    """The name and the content of a file to be imported."""

    name: str
    content: bytes = attrs.field(converter=_with_null)

    def decoded(self, kind: type[T], what: str = "") -> T:
        """Returns the whole document as an object of a class.

        Raises:
          FormatError: it is not JSON, or not `what`; the message gives the line.
        """
        try:
            return msgspec.json.decode(self.content, type=kind)
        except RecursionError as error:
            raise FormatError(f"{self.name}: not JSON: nested too deeply") from error
        except msgspec.ValidationError as error:
            raise FormatError(f"{self.name}:1: not {what}: {error}") from error
        except msgspec.DecodeError as error:
            byte = _BYTE.search(str(error))
            place = Part(self, b"", int(byte[1]) if byte else len(self.content))
            raise FormatError(f"{place}: not JSON ({error})") from error

    def part(self, raw: Raw, start: int = 0) -> Part:
        """Returns a part that was decoded as `Raw` and begins at `start` or later."""
        content = bytes(raw)
        return Part(self, content, max(self.content.find(content, start), 0))


Importer: TypeAlias = Callable[[Source], Contents]


def read_source(path: Path) -> Source:
    """Returns the content of a file.

    Raises:
      FormatError: the file cannot be read, or is not UTF-8; the message gives the line.
    """
    try:
        if path.stat().st_size > _LARGEST_BYTES:
            raise FormatError(f"{path}: larger than {_LARGEST_BYTES / 2**30:g} GiB")
        content = path.read_bytes()
    except OSError as error:
        raise FormatError(f"{path}: {error.strerror or error}") from error
    try:
        return Source(str(path), content.decode("utf-8-sig").encode())
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise FormatError(f"{path}:{line}: not UTF-8 text ({error.reason})") from error


def numbers(fields: Mapping[str, Any]) -> dict[str, float]:
    """Returns the fields that are finite numbers."""
    return {
        name: float(value)
        for name, value in fields.items()
        if isinstance(value, (int, float)) and type(value) is not bool and abs(value) <= _LARGEST
    }


def escaped(sentence: str) -> str:
    """Returns a sentence with quotes of a foreign file, without terminal control characters."""
    return "".join(
        character if character.isprintable() else ascii(character)[1:-1] for character in sentence
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
      merge: returns the JSON value of a file that exists already, from the old and the new value;
        None to replace existing files.
    """

    files: Mapping[str, bytes]
    remarks: tuple[str, ...] = ()
    merge: Callable[[Any, Any], Any] | None = None


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
                "or choose one run with --run"
            )
        seen.add(name)


def remarks_on(results: Sequence[PortableResult], *held: str) -> tuple[str, ...]:
    """Returns remarks for the user: `held`, then the number of results without a time."""
    remarks = list(held)
    failed = [result for result in results if result.status != OK]
    if failed:
        remarks.append(
            f"results that are not ok (a status, but no time): {len(failed)} of {len(results)}"
        )
    untimed = sum(result.status == OK and result.latency_ms is None for result in results)
    if untimed:
        remarks.append(f"results without a latency (compile only): {untimed} of {len(results)}")
    return tuple(remarks)


def one_run(results: Sequence[PortableResult], format_name: str) -> str | None:
    """Returns the run of the results, for formats with a single run; None if none is named.

    Raises:
      FormatError: there are several runs.
    """
    runs = sorted({result.run_id for result in results if result.run_id})
    if len(runs) > 1:
        raise FormatError(
            f"{format_name} can contain only one run, got {len(runs)}: {', '.join(runs)}; "
            "choose one with --run"
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
        carried = carrier.decoded(_Carrier)
        if carried.version != CARRIER_VERSION:
            raise FormatError(f"unsupported version {carried.version}, expected {CARRIER_VERSION}")
        items = list(carrier.source.part(carried.results, carrier.offset).items())
    except FormatError as error:
        raise FormatError(f"{carrier}: {CARRIER}: {error}") from error
    results: list[tuple[Part, PortableResult]] = []
    refused: list[str] = []
    for part in items:
        try:
            results.append((part, part.decoded(PortableResult)))
        except FormatError as error:
            refused.append(f"{part}: {error}")
    accepted = []
    reasons = faults([result for _, result in results])
    for (part, result), fault in zip(results, reasons, strict=True):
        if fault is None:
            accepted.append(result)
        else:
            refused.append(f"{part}: {result.name}: {fault}")
    return Contents(tuple(accepted), tuple(refused))


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
    loaded: Exporter = _load(_EXPORTERS[name])
    return loaded


def importer(name: str) -> Importer:
    """Returns the importer of a format of `IMPORTS`; for `auto`, one that detects it."""
    if name == AUTO:
        return lambda source: importer(detect(source))(source)
    loaded: Importer = _load(_IMPORTERS[name][0])
    return loaded


def read_file(path: Path, name: str = AUTO) -> Contents:
    """Returns the content of a file in a format; an unreadable file gives one refusal."""
    try:
        source = read_source(path)
        kind = detect(source) if name == AUTO else name
        contents = importer(kind)(source)
    except FormatError as error:
        return Contents(refused=(str(error),))
    results = (r if r.identity else replace(r, origin=kind) for r in contents.results)
    return Contents(tuple(results), contents.refused, contents.skipped)


def detect(source: Source) -> str:
    """Returns the format of a file.

    Raises:
      FormatError: no format that can be imported fits, or the file is not JSON.
    """
    document = _first(source)
    if isinstance(document, dict) and "schema_version" in document and "runs" in document:
        raise FormatError(
            f"{source.name} is a cbs results file; use `cbs history import {source.name}`"
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
                value = msgspec.json.decode(line)
            except (msgspec.DecodeError, RecursionError):
                continue
            # A line of an indented document may be valid JSON by chance, but is not a record.
            if isinstance(value, dict) and "metric" in value:
                return value
        raise


def _load(reference: str) -> Any:
    module, _, name = reference.partition(":")
    return getattr(importlib.import_module(f"{__package__}.{module}"), name)
