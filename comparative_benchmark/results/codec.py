"""Strict JSON encoding and decoding of results; invalid input is rejected with its location."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from comparative_benchmark.results.record import (
    MEASURED,
    SCHEMA_VERSION,
    Document,
    Status,
)
from openxla.benchmark.text import encodable_json

T = TypeVar("T")
_SURROGATE = re.compile(rb"\\ud[89a-f]")

SCHEMA_FILE = Path(__file__).parent / "schema" / "results.v1.schema.json"
# Keep messages on one line if the offending value is not shown.
_LONGEST_MESSAGE = 400


class ResultsFileError(RuntimeError):
    """A results file cannot be read or written; the message gives the reason and the remedy."""


def read_document(path: Path) -> Document:
    """Returns the content of a results file.

    Raises:
      ResultsFileError: the file is missing or is not a valid results file; the message gives the
        error and its location in one line.
    """
    return decode_document(read_content(path), str(path))


def read_content(path: Path) -> bytes:
    """Returns the content of a file as bytes.

    Raises:
      ResultsFileError: the file is missing or cannot be read.
    """
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise ResultsFileError(f"{path} does not exist") from error
    except OSError as error:
        raise ResultsFileError(f"{path} cannot be read: {error.strerror or error}") from error


def decode_document(content: bytes, where: str) -> Document:
    """Decodes a document from JSON.

    Raises:
      ResultsFileError: the content is not JSON, not a results file, or invalid.
    """
    plain = parse(content, where)
    version = plain.get("schema_version") if isinstance(plain, dict) else None
    if type(version) is not int:
        raise ResultsFileError(f"{where} is not a results file: it has no schema_version")
    if version != SCHEMA_VERSION:
        raise ResultsFileError(
            f"{where} has schema version {version}, expected {SCHEMA_VERSION}; a newer release of "
            "the suite may read it"
        )
    document = validated(content, Document, where)
    seen: set[Any] = set()
    for position, result in enumerate(document.benchmarks):
        identity = (
            result.run_id,
            result.key,
            result.definition.workload.digest,
            result.definition.framework,
            result.measured.compile_only,
        )
        if identity in seen:
            raise ResultsFileError(
                f"{where}: $.benchmarks[{position}]: duplicate result {' '.join(result.key)} in "
                f"run {result.run_id}"
            )
        seen.add(identity)
    return document


def parse(content: bytes, where: str) -> Any:
    """Parses JSON into plain values; rejects duplicate keys and NaN.

    Raises:
      ResultsFileError: the content is not JSON; the message has the line and column if known.
    """
    try:
        return json.loads(
            content.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_refused
        )
    except json.JSONDecodeError as error:
        # Some of the decoder's messages end in "at".
        said = error.msg.removesuffix(" at")
        reason = f"{said} at line {error.lineno}, column {error.colno}"
    except RecursionError:
        reason = "nested too deeply"
    except ValueError as error:
        reason = str(error)
    raise ResultsFileError(f"{where} is not JSON: {_line(reason)}")


def validated(content: bytes, kind: type[T], where: str) -> T:
    """Decodes well-formed JSON into an instance of `kind`.

    Raises:
      ResultsFileError: the content is invalid; the message has the path of the invalid value.
    """
    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.ValidationError as error:
        reason = str(error)
    except msgspec.DecodeError:
        # The standard library accepts lone surrogates, but no encoding does.
        reason = "a string contains half a surrogate pair"
    except RecursionError:
        reason = "nested too deeply"
    raise ResultsFileError(f"{where} is not a valid results file: {_line(reason)}")


def converted(value: Any, kind: type[T]) -> T:
    """Converts plain values, such as a worker's reply, to an instance of `kind`.

    Raises:
      msgspec.ValidationError: the values are invalid.
    """
    return msgspec.convert(value, kind, strict=False)


def encode(value: object) -> bytes:
    """Encodes a record as JSON; unset fields are omitted.

    Raises:
      ValueError: the record contains NaN or infinity, which msgspec's own encoder writes as null.
    """
    return to_json(plain(value))


def to_json(value: Any) -> bytes:
    """Encodes a JSON value as bytes that every JSON parser accepts.

    Raises:
      ValueError: the value contains NaN or infinity.
    """
    encoded = json.dumps(value, allow_nan=False).encode()
    # A lone surrogate, or a backslash sequence that looks like one.
    if _SURROGATE.search(encoded):
        encoded = json.dumps(encodable_json(value), allow_nan=False).encode()
    return encoded


def plain(value: object) -> Any:
    """Converts a record to dictionaries and lists."""
    return msgspec.to_builtins(value)


def schema() -> dict[str, Any]:
    """Returns the JSON Schema of results files."""
    found: dict[str, Any] = msgspec.json.schema(Document)
    kinds = found["$defs"]
    kinds["Status"]["enum"] = [status.value for status in Status]
    # Constraints that `Levels` and `Result` check beyond types.
    kinds["Levels"] |= {"minProperties": 1, "maxProperties": 1}
    speed = [{"required": ["latencies_ms"]}, {"required": ["median_latency_ms"]}]
    ok = {
        "not": {"required": ["error"]},
        "if": {
            "properties": {"stop_reason": {"const": "compile_only"}},
            "required": ["stop_reason"],
        },
        "then": {"required": ["compile"], "not": {"anyOf": speed}},
        "else": {
            "required": list(MEASURED),
            # Scripts that report rates are not verified against a truth.
            "if": {"required": ["throughput"]},
            "then": {"properties": {"throughput": {"properties": {"rate": {"type": "number"}}}}},
            "else": {
                "properties": {
                    name: {"$ref": "#/$defs/Verification"}
                    for name in ("verification", "final_verification")
                },
            },
        },
    }
    failed = {"required": ["error"], "not": {"anyOf": speed}}
    kinds["Result"] |= {
        "if": {"properties": {"status": {"const": "ok"}}, "required": ["status"]},
        "then": {"properties": {"metrics": {"additionalProperties": ok}}},
        "else": {
            "required": ["phase", "reason"],
            "properties": {
                "phase": {"type": "string", "minLength": 1},
                "reason": {"type": "string", "minLength": 1},
                "metrics": {"additionalProperties": failed},
            },
        },
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "urn:common-benchmark-suite:results:v1",
        "title": "Results of the Common Benchmark Suite, schema version 1",
        "description": "Times are in milliseconds unless the name contains another unit. Readers "
        "must accept properties that are not listed here.",
        **found,
    }


def _unique(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"duplicate key {twice!r} in an object")
    return found


def _refused(constant: str) -> Any:
    raise ValueError(f"{constant} is not a valid JSON number")


def _line(text: str) -> str:
    shown = " ".join(ascii(text)[1:-1].split())
    return shown if len(shown) <= _LONGEST_MESSAGE else f"{shown[:_LONGEST_MESSAGE]} ..."
