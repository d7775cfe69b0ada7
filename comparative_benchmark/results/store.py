"""The results file: schema-versioned JSON, written atomically under a lock, added to."""

import contextlib
import datetime
import json
import os
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from filelock import FileLock, Timeout

from comparative_benchmark.results.records import Record

SCHEMA_VERSION = 1
SCHEMA_FILE = Path(__file__).parent / "schema" / "results.v1.schema.json"
_LOCK_TIMEOUT_S = 60.0

# Results come last, each on a line of its own, so that one more is a copy and a line: reading and
# writing the JSON of all others for each would take more time than a long run's trials.
_END = b"\n]}\n"


class ResultsFileError(RuntimeError):
    """A results file can not be read or written; the message says why and what to do."""


class ResultsFile:
    """Results on disk. Each `append` is durable when it returns."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self._lock = FileLock(self.path.parent / f".{self.path.name}.lock")

    def start_run(self, *, execution_environment: Mapping[str, Any], command: Sequence[str]) -> str:
        """Registers a run and returns its identifier; creates the file if there is none.

        Raises:
          ResultsFileError: the file can not be written, or is not one of ours; it is untouched.
        """
        now = datetime.datetime.now(datetime.UTC)
        run = {
            "run_id": f"{now:%Y%m%dT%H%M%SZ}-{uuid.uuid4().hex[:8]}",
            "trigger": {"timestamp": now.isoformat(timespec="seconds"), "command": list(command)},
            "execution_environment": dict(execution_environment),
        }
        self._update(lambda document: document["runs"].append(run))
        return str(run["run_id"])

    def append(self, record: Record) -> None:
        """Adds one result.

        Raises:
          ResultsFileError: the file can not be written any more.
        """
        line = _encode(record)
        with self._locked():
            if not _append_line(self.path, line):
                # Not of this writer: read and write all of it.
                self._change(lambda document: document["benchmarks"].append(record))

    def records(self) -> list[Record]:
        """Returns all results; none if there is no file yet.

        Raises:
          ResultsFileError: the file is not one of ours.
        """
        return list(self.document()["benchmarks"]) if self.path.exists() else []

    def document(self) -> Record:
        """Returns the whole content of the file.

        Raises:
          ResultsFileError: the file can not be read, or is not one of ours.
        """
        document: Record
        try:
            document = json.loads(self.path.read_text(encoding="utf-8"))
        except OSError as error:
            raise ResultsFileError(f"{self.path} can not be read: {error}") from error
        except (ValueError, RecursionError) as error:
            raise ResultsFileError(
                f"{self.path} is no JSON ({error}); it was left as it is. Move it away, or choose "
                "another file with -o"
            ) from error
        version = document.get("schema_version") if isinstance(document, dict) else None
        if type(version) is not int or version != SCHEMA_VERSION or not _has_lists(document):
            what = (
                f"schema version {version}, this program writes {SCHEMA_VERSION}"
                if isinstance(version, int) and version != SCHEMA_VERSION
                else "JSON of another kind"
            )
            raise ResultsFileError(
                f"{self.path} is no results file of ours ({what}); it was left as it is. "
                "Choose another file with -o"
            )
        return document

    def _update(self, change: Callable[[Record], None]) -> None:
        with self._locked():
            self._change(change)

    def _change(self, change: Callable[[Record], None]) -> None:
        document = self.document() if self.path.exists() else _empty()
        change(document)
        latest = document["runs"][-1]
        # Where the seed's readers look; it knew one run a file.
        document["trigger"] = latest["trigger"]
        document["execution_environment"] = latest["execution_environment"]
        with _replacing(self.path) as file:
            file.write(_encode_document(document))

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            # The lock waits where a file can not be made, as if another process held it.
            tempfile.TemporaryFile(dir=self.path.parent).close()
            with self._lock.acquire(timeout=_LOCK_TIMEOUT_S):
                yield
        except Timeout as error:
            raise ResultsFileError(
                f"{self.path}: another process has held its lock for {_LOCK_TIMEOUT_S:g} s"
            ) from error
        except OSError as error:
            raise ResultsFileError(f"{self.path} can not be written: {error}") from error


def _append_line(path: Path, line: bytes) -> bool:
    """Adds a result to a file of this writer; returns False, having done nothing, to any other."""
    try:
        old = path.open("rb")
    except FileNotFoundError:
        return False
    with old:
        size = old.seek(0, os.SEEK_END)
        # The bracket, or the brace of the last result, and the end.
        old.seek(max(0, size - len(_END) - 1))
        before, tail = old.read(1), old.read()
        if tail != _END or before not in (b"[", b"}"):
            return False
        old.seek(0)
        with _replacing(path) as new:
            shutil.copyfileobj(old, new, length=1 << 20)
            new.seek(-len(_END), os.SEEK_END)
            new.write((b",\n" if before == b"}" else b"\n") + line + _END)
    return True


def _encode(record: Record) -> bytes:
    return json.dumps(record, allow_nan=False).encode()


def _encode_document(document: Record) -> bytes:
    """Returns the document, its results last."""
    head = {key: value for key, value in document.items() if key != "benchmarks"}
    lines = b",".join(b"\n" + _encode(record) for record in document["benchmarks"])
    return _encode(head)[:-1] + b', "benchmarks": [' + lines + _END


def _has_lists(document: Record) -> bool:
    runs, benchmarks = document.get("runs"), document.get("benchmarks")
    return isinstance(runs, list) and isinstance(benchmarks, list) and bool(runs)


def _empty() -> Record:
    return {
        "schema_version": SCHEMA_VERSION,
        "trigger": {},
        "execution_environment": {},
        "runs": [],
        "benchmarks": [],
    }


def write_atomically(path: Path, document: Mapping[str, Any]) -> None:
    """Writes JSON beside the file, syncs, renames: a reader sees the old content or the new one.

    Raises:
      OSError: the folder or the file can not be written; an old file is as it was.
    """
    with _replacing(path) as file:
        file.write(_encode(dict(document)) + b"\n")


@contextlib.contextmanager
def _replacing(path: Path) -> Iterator[BinaryIO]:
    """Gives a new file, which takes the name when all is written and synced."""
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        # mkstemp makes files that only their owner reads; results are for everyone.
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
