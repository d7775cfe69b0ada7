"""The JSON file of a matrix, written as a whole, every few seconds and at the end.

    {"schema_version": 1, "kind": "parity", "started": ..., "command": [...],
     "execution_environment": {"python_environment": [...], "host": {...}, "git_revision": ...,
                               "jobs": ...},
     "cells": [CellResult ...], "drift": [...],
     "counts": {"ok": ..., ...}, "exit_code": ...}

`cells` has one object for each combination of workload, framework and competitor, with the fields
of `CellResult`; its `expected` is the reason of a known failure. `counts` and `exit_code` are null
until the run has ended.
"""

import datetime
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self

import attrs
import msgspec
from filelock import FileLock, Timeout

from comparative_benchmark.results.record import Status
from comparative_benchmark.results.results_file import plain, write_atomically
from comparative_benchmark.studies.parity.cell_result import CellResult
from comparative_benchmark.studies.parity.grid import CellKey

SCHEMA_VERSION = 1
_KIND = "parity"
# `--resume` reuses results with these statuses.
_SETTLED = (Status.OK, Status.UNSUPPORTED)
_WRITE_EVERY_S = 2.0


class ParityFileError(RuntimeError):
    """A file is not a parity file, or cannot be written; the message gives the remedy."""


class ParityFile:
    """A matrix stored in a file, or only in memory if there is no path.

    A matrix may have thousands of cells, so the file is written at most every few seconds, and at
    the end of the `with` block, which the caller must enter. Within the block, the file is locked:
    two processes would overwrite each other's results.
    """

    def __init__(
        self,
        path: Path | None,
        *,
        command: Sequence[str],
        execution_environment: Mapping[str, Any],
        resume: bool,
    ) -> None:
        """Reads an existing file.

        Raises:
          ParityFileError: the file is not a parity file, and is left unchanged; or another process
            is writing it.
        """
        self._path = path.absolute() if path else None
        self._lock = self._locked()
        self._cells: dict[tuple[str, CellKey], CellResult] = {}
        try:
            known = _read(self._path) if self._path and self._path.exists() else ()
        except ParityFileError:
            self._release()
            raise
        if resume:
            self._cells = {(cell.device, cell.key): cell for cell in known}
        self._head = {
            "schema_version": SCHEMA_VERSION,
            "kind": _KIND,
            "started": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "command": list(command),
            "execution_environment": dict(execution_environment),
        }
        self._tail: dict[str, Any] = {"drift": [], "counts": None, "exit_code": None}
        self._written_at = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.flush()
        finally:
            self._release()

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.release()

    def _locked(self) -> FileLock | None:
        if self._path is None:
            return None
        lock = FileLock(self._path.parent / f".{self._path.name}.lock")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            lock.acquire(timeout=0)
        except Timeout:
            raise ParityFileError(
                f"another `cbs parity` is writing {self._path}; wait until it ends, or choose "
                "another file with -o"
            ) from None
        except OSError as error:
            raise ParityFileError(f"{self._path} cannot be written: {error}") from error
        return lock

    def settled(self, device: str) -> dict[CellKey, CellResult]:
        """Returns the results that can be reused."""
        return {
            key: attrs.evolve(cell, expected=msgspec.UNSET)
            for (where, key), cell in self._cells.items()
            if where == device and cell.status in _SETTLED
        }

    def put(self, result: CellResult) -> None:
        """Stores a result, replacing an older one of the same cell.

        Raises:
          ParityFileError: the file cannot be written.
        """
        self._cells[(result.device, result.key)] = result
        if time.monotonic() - self._written_at > _WRITE_EVERY_S:
            self.flush()

    def finish(
        self,
        *,
        expected: Mapping[CellKey, str],
        drift: Iterable[Mapping[str, Any]],
        counts: Mapping[str, int],
        exit_code: int,
        device: str,
    ) -> None:
        """Adds information that is available after all cells have ended.

        Raises:
          ParityFileError: the file cannot be written.
        """
        for key, reason in expected.items():
            place = (device, key)
            self._cells[place] = attrs.evolve(self._cells[place], expected=reason)
        self._tail = {"drift": list(drift), "counts": dict(counts), "exit_code": exit_code}
        self.flush()

    def flush(self) -> None:
        """Writes the current state.

        Raises:
          ParityFileError: the file cannot be written.
        """
        self._written_at = time.monotonic()
        if self._path is None:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            cells = [plain(cell) for cell in self._cells.values()]
            write_atomically(self._path, {**self._head, "cells": cells, **self._tail})
        except OSError as error:
            raise ParityFileError(f"{self._path} cannot be written: {error}") from error


@attrs.frozen
class _File:
    schema_version: Literal[1]
    kind: Literal["parity"]
    cells: tuple[CellResult, ...]


def _read(path: Path) -> tuple[CellResult, ...]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=_File).cells
    except OSError as error:
        raise ParityFileError(f"{path} cannot be read: {error}") from error
    except (ValueError, RecursionError) as error:
        raise ParityFileError(
            f"{path} is not a file of `cbs parity` ({error}) and was not changed; choose another "
            "file with -o"
        ) from error
