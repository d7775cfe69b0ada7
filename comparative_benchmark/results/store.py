"""The results file: schema-versioned JSON, appended to atomically under a lock."""

import contextlib
import datetime
import json
import os
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from comparative_benchmark.results import codec
from comparative_benchmark.results.codec import ResultsFileError
from comparative_benchmark.results.record import (
    SCHEMA_VERSION,
    Document,
    ExecutionEnvironment,
    Result,
    Run,
    Trigger,
)
from openxla.benchmark import files
from openxla.benchmark.files import new_file

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
        self._runs.append(codec.plain(run))
        self._update(lambda _: None)
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
                say(f"waiting for another run that resumes {self.path}")
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
        encoded = [codec.encode(result) for result in results]
        for line in encoded:
            # Never write a result that could not be read back.
            codec.validated(line, Result, f"a result for {self.path}")
        lines = b",\n".join(encoded)
        with self._locked():
            self._refuse_other_kinds()
            if not _append_lines(self.path, lines, [run["run_id"] for run in self._runs]):
                # Another writer created the file, or it was moved: rewrite it as a whole.
                added = codec.plain(results)
                self._change(lambda document: document["benchmarks"].extend(added))

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
        return codec.read_document(self.path)

    def _update(self, change: Callable[[dict[str, Any]], None]) -> None:
        with self._locked():
            self._change(change)

    def _change(self, change: Callable[[dict[str, Any]], None]) -> None:
        self._refuse_other_kinds()
        document = self._read_plain() if self.path.exists() else _empty()
        known = {run["run_id"] for run in document["runs"]}
        # The file may have been created or replaced since the run was registered.
        document["runs"] += [run for run in self._runs if run["run_id"] not in known]
        change(document)
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
        codec.decode_document(content, str(self.path))
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
                f"{self.path}: another process has held its lock for {_LOCK_TIMEOUT_S:g} s"
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


def _encode(value: Mapping[str, Any]) -> bytes:
    return codec.to_json(value)


def _encode_document(document: Mapping[str, Any]) -> bytes:
    """Encodes the document with its results last."""
    head = {key: value for key, value in document.items() if key != "benchmarks"}
    lines = b",".join(b"\n" + _encode(record) for record in document["benchmarks"])
    return _encode(head)[:-1] + b', "benchmarks": [' + lines + _END


def _empty() -> dict[str, Any]:
    return {
        "schema_version": SCHEMA_VERSION,
        "trigger": {},
        "execution_environment": {},
        "runs": [],
        "benchmarks": [],
    }


def write_atomically(path: Path, document: Mapping[str, Any]) -> None:
    """Writes JSON to a temporary file, syncs and renames it; readers see the old or new content.

    Raises:
      OSError: the folder or the file cannot be written; an existing file is unchanged.
    """
    files.write_atomically(path, _encode(dict(document)) + b"\n")
