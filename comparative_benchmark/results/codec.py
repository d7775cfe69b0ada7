"""Results as JSON, strictly: what is not valid is refused with its place, never guessed."""

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
# Where nothing is shown of a value that is wrong, messages stay on one line.
_LONGEST_MESSAGE = 400


class ResultsFileError(RuntimeError):
    """A results file cannot be read or written; the message says why and what to do."""


def read_document(path: Path) -> Document:
    """Returns the content of a results file.

    Raises:
      ResultsFileError: there is no such file, or it is not one of ours; the message says in one
        line what is wrong, and where.
    """
    return decode_document(read_content(path), str(path))


def read_content(path: Path) -> bytes:
    """Returns the bytes of a file.

    Raises:
      ResultsFileError: there is no such file, or it cannot be read.
    """
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise ResultsFileError(f"{path} does not exist") from error
    except OSError as error:
        raise ResultsFileError(f"{path} cannot be read: {error.strerror or error}") from error


def decode_document(content: bytes, where: str) -> Document:
    """Returns the document in JSON.

    Raises:
      ResultsFileError: it is not JSON, not a results file, or not valid.
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
    """Returns JSON as plain values; names that stand twice and NaN are refused.

    Raises:
      ResultsFileError: it is not JSON; the message has line and column where these are known.
    """
    try:
        return json.loads(
            content.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_refused
        )
    except json.JSONDecodeError as error:
        # Some of its messages end in "at".
        said = error.msg.removesuffix(" at")
        reason = f"{said} at line {error.lineno}, column {error.colno}"
    except RecursionError:
        reason = "nested too deeply"
    except ValueError as error:
        reason = str(error)
    raise ResultsFileError(f"{where} is not JSON: {_line(reason)}")


def validated(content: bytes, kind: type[T], where: str) -> T:
    """Returns JSON, known to be well-formed, as an object of a class.

    Raises:
      ResultsFileError: it is not valid; the message has the path of what is wrong.
    """
    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.ValidationError as error:
        reason = str(error)
    except msgspec.DecodeError:
        # The standard library takes these, and no encoding does.
        reason = "a string contains half a surrogate pair"
    except RecursionError:
        reason = "nested too deeply"
    raise ResultsFileError(f"{where} is not a valid results file: {_line(reason)}")


def converted(value: Any, kind: type[T]) -> T:
    """Returns plain values, such as a worker's answer, as an object of a class.

    Raises:
      msgspec.ValidationError: they are not valid.
    """
    return msgspec.convert(value, kind, strict=False)


def encode(value: object) -> bytes:
    """Returns an object of these classes as JSON; what is unset is left out.

    Raises:
      ValueError: it holds NaN or infinity, for which msgspec's own encoder writes null.
    """
    return to_json(plain(value))


def to_json(value: Any) -> bytes:
    """Returns a JSON value as bytes that every reader takes.

    Raises:
      ValueError: it holds NaN or infinity.
    """
    encoded = json.dumps(value, allow_nan=False).encode()
    # Half of a surrogate pair, or a backslash that looks like one.
    if _SURROGATE.search(encoded):
        encoded = json.dumps(encodable_json(value), allow_nan=False).encode()
    return encoded


def plain(value: object) -> Any:
    """Returns an object of these classes as dictionaries and lists."""
    return msgspec.to_builtins(value)


def schema() -> dict[str, Any]:
    """Returns the JSON Schema of results files."""
    found: dict[str, Any] = msgspec.json.schema(Document)
    kinds = found["$defs"]
    kinds["Status"]["enum"] = [status.value for status in Status]
    # What `Levels` and `Result` check beyond types.
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
            # No truth is known for a script that tells rates.
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
