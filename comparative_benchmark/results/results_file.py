"""The results file: strict, schema-versioned JSON, appended to atomically under a lock.

Invalid input is rejected with its location.
"""

import contextlib
import datetime
import json
import os
import re
import shutil
import tempfile
import uuid
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from filelock import FileLock, Timeout

from comparative_benchmark.errors import UsageError
from comparative_benchmark.results.record import (
    MEASURED,
    SCHEMA_VERSION,
    Document,
    ExecutionEnvironment,
    Result,
    Run,
    Status,
    Trigger,
)
from openxla.benchmark import files
from openxla.benchmark.files import new_file
from openxla.benchmark.text import encodable_json

T = TypeVar("T")
_SURROGATE = re.compile(rb"\\ud[89a-f]")

SCHEMA_FILE = Path(__file__).parent / "schema" / "results.v1.schema.json"
# Keep messages on one line if the offending value is not shown.
_LONGEST_MESSAGE = 400


class ResultsFileError(UsageError, RuntimeError):
    """A results file cannot be read or written; the message gives the reason and the remedy."""


def read_document(path: Path) -> Document:
    """Returns the content of a results file.

    Raises:
      ResultsFileError: the file is missing or is not a valid results file; the message gives the
        error and its location in one line.
    """
    return decode_document(read_content(path), str(path))


def refuse_results(outputs: Iterable[Any], given: Iterable[Any] = ()) -> None:
    """Raises `UsageError` if an output would replace a given file or another results file."""
    taken = {Path(path).resolve() for path in given if path}
    for path in map(Path, filter(None, outputs)):
        if path.resolve() in taken or _has_results(path):
            raise UsageError(f"{path} contains results; choose another file for the output")


def _has_results(path: Path) -> bool:
    with contextlib.suppress(ResultsFileError, OSError):
        # Reading from a pipe or a terminal could wait.
        return path.is_file() and bool(read_document(path))
    return False


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
            "the suite may be able to read it"
        )
    document = validated(content, Document, where)
    seen: set[Any] = set()
    for position, result in enumerate(document.benchmarks):
        if (identity := identity_of(result)) in seen:
            raise ResultsFileError(
                f"{where}: $.benchmarks[{position}]: duplicate result {' '.join(result.key)} in "
                f"run {result.run_id}"
            )
        seen.add(identity)
    return document


def identity_of(result: Result) -> Hashable:
    """Returns a value that no other result of a valid file has."""
    return (
        result.run_id,
        result.key,
        result.definition.workload.digest,
        result.definition.framework,
        result.measured.compile_only,
    )


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
        message = error.msg.removesuffix(" at")
        reason = f"{message} at line {error.lineno}, column {error.colno}"
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
    schema: dict[str, Any] = msgspec.json.schema(Document)
    kinds = schema["$defs"]
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
                }
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
        **schema,
    }


def _unique(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"duplicate key {twice!r} in an object")
    return members


def _refused(constant: str) -> Any:
    raise ValueError(f"{constant} is not a valid JSON number")


def _line(text: str) -> str:
    shown = " ".join(ascii(text)[1:-1].split())
    return shown if len(shown) <= _LONGEST_MESSAGE else f"{shown[:_LONGEST_MESSAGE]} ..."


_LOCK_TIMEOUT_S = 60.0

# Results come last, one per line, so appending a result copies the file and adds lines. Parsing and
# encoding all earlier results would take longer than the trials of a long run.
_END = b"\n]}\n"


class ResultsFile:
    """Results on disk; each `append` is durable on return."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        # Runs registered by this object.
        self._runs: list[dict[str, Any]] = []
        self._lock = FileLock(self.path.parent / f".{self.path.name}.lock")

    def start_run(
        self, *, execution_environment: ExecutionEnvironment, command: Sequence[str]
    ) -> str:
        """Registers a run and returns its identifier; creates the file if it does not exist.

        Raises:
          ResultsFileError: the file cannot be written or is not a results file; it is unchanged.
        """
        now = datetime.datetime.now(datetime.UTC)
        run = Run(
            run_id=f"{now:%Y%m%dT%H%M%SZ}-{uuid.uuid4().hex[:8]}",
            trigger=Trigger(timestamp=now.isoformat(timespec="seconds"), command=tuple(command)),
            execution_environment=execution_environment,
        )
        self._runs.append(plain(run))
        with self._locked():
            self._rewrite()
        return run.run_id

    @contextlib.contextmanager
    def resumed_alone(self, say: Callable[[str], None]) -> Iterator[None]:
        """Waits until no other run resumes this file; both would measure the same trials."""
        lock = FileLock(self.path.parent / f".{self.path.name}.resumed.lock")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            try:
                lock.acquire(timeout=0)
            except Timeout:
                say(f"waiting for another run that is resuming {self.path}")
                lock.acquire()
        except (OSError, NotImplementedError):  # no locks on this file system, or read-only
            yield
            return
        try:
            yield
        finally:
            lock.release()

    def append(self, *results: Result) -> None:
        """Appends results atomically: all or none.

        Raises:
          ResultsFileError: the file can no longer be written.
        """
        encoded = [encode(result) for result in results]
        for line in encoded:
            # Never write a result that could not be read back.
            validated(line, Result, f"a result for {self.path}")
        lines = b",\n".join(encoded)
        with self._locked():
            self._refuse_other_kinds()
            if not _append_lines(self.path, lines, [run["run_id"] for run in self._runs]):
                # Another writer created the file, or it was moved.
                self._rewrite(*results)

    def results(self) -> tuple[Result, ...]:
        """Returns all results; empty if the file does not exist yet.

        Raises:
          ResultsFileError: the file is not a results file.
        """
        self._refuse_other_kinds()
        return self.document().benchmarks if self.path.exists() else ()

    def document(self) -> Document:
        """Returns the whole content of the file.

        Raises:
          ResultsFileError: the file cannot be read or is not a results file.
        """
        return read_document(self.path)

    def _rewrite(self, *added: Result) -> None:
        """Writes the file as a whole, with all runs of this object and these results."""
        self._refuse_other_kinds()
        document = self._read_plain() if self.path.exists() else _empty()
        known = {run["run_id"] for run in document["runs"]}
        # The file may have been created or replaced since the run was registered.
        document["runs"] += [run for run in self._runs if run["run_id"] not in known]
        document["benchmarks"] += plain(added)
        latest = document["runs"][-1]
        # The OpenXLA suite's readers expect these fields here; it had one run per file.
        document["trigger"] = latest["trigger"]
        document["execution_environment"] = latest["execution_environment"]
        with new_file(self.path) as temporary:
            temporary.write_bytes(_encode_document(document))

    def _refuse_other_kinds(self) -> None:
        """Raises `ResultsFileError` if the path is a folder, a pipe or a device."""
        if self.path.exists() and not self.path.is_file():
            raise ResultsFileError(f"{self.path} is not a regular file")

    def _read_plain(self) -> dict[str, Any]:
        """Returns a valid file unchanged, including fields added by later versions."""
        content = self.path.read_bytes()
        decode_document(content, str(self.path))
        document: dict[str, Any] = json.loads(content)
        return document

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            # If the folder is read-only, the lock would wait as if another process held it.
            tempfile.TemporaryFile(dir=self.path.parent).close()
            with self._lock.acquire(timeout=_LOCK_TIMEOUT_S):
                yield
        except Timeout as error:
            raise ResultsFileError(
                f"{self.path}: another process held its lock for {_LOCK_TIMEOUT_S:g} s; try again"
            ) from error
        except OSError as error:
            raise ResultsFileError(f"{self.path} cannot be written: {error}") from error


def _append_lines(path: Path, lines: bytes, run_ids: Sequence[str]) -> bool:
    """Appends results to a file written by this class.

    Returns:
      False, without changes, if another writer wrote the file or it lacks one of the runs.
    """
    try:
        old = path.open("rb")
    except FileNotFoundError:
        return False
    with old:
        size = old.seek(0, os.SEEK_END)
        # The closing bracket or brace of the last entry, and the end marker.
        old.seek(max(0, size - len(_END) - 1))
        before, tail = old.read(1), old.read()
        if tail != _END or before not in (b"[", b"}"):
            return False
        old.seek(0)
        # The first line holds everything except the results.
        head = old.readline()
        if not all(run_id.encode() in head for run_id in run_ids):
            return False
        old.seek(0)
        with new_file(path) as temporary, temporary.open("w+b") as new:
            shutil.copyfileobj(old, new, length=1 << 20)
            new.seek(-len(_END), os.SEEK_END)
            new.write((b",\n" if before == b"}" else b"\n") + lines + _END)
    return True


def _encode_document(document: Mapping[str, Any]) -> bytes:
    """Encodes the document with its results last."""
    head = {key: value for key, value in document.items() if key != "benchmarks"}
    lines = b",".join(b"\n" + to_json(record) for record in document["benchmarks"])
    return to_json(head)[:-1] + b', "benchmarks": [' + lines + _END


def _empty() -> dict[str, Any]:
    latest: dict[str, Any] = {"trigger": {}, "execution_environment": {}}
    return {"schema_version": SCHEMA_VERSION, **latest, "runs": [], "benchmarks": []}


def write_atomically(path: Path, document: Mapping[str, Any]) -> None:
    """Writes JSON to a temporary file, syncs and renames it; readers see the old or new content.

    Raises:
      OSError: the folder or the file cannot be written; an existing file is unchanged.
    """
    files.write_atomically(path, to_json(dict(document)) + b"\n")
