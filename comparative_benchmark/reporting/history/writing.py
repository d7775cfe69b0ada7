"""Writes rows to the database: in bulk, without duplicates, alongside other writers."""

import datetime
import hashlib
import json
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import attrs
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Connection

from comparative_benchmark.reporting.history.database import (
    PACKAGES,
    RESULT_FIELDS,
    RESULTS,
    SERIES,
    VERSION_SETS,
    Database,
)
from comparative_benchmark.reporting.history.rows import (
    DIMENSIONS,
    Contents,
    Row,
    RowError,
    canonical,
    microseconds,
    row_of,
)

# Large enough for few transactions, small enough to let other writers proceed.
_CHUNK = 5_000
_PLAIN = tuple(name for name in RESULT_FIELDS if name != "extra")
_PLAIN_VALUES = operator.attrgetter(*_PLAIN)
_Versions = tuple[tuple[str, str], ...]


@attrs.frozen
class Written:
    """Number of new and of known rows."""

    added: int = 0
    known: int = 0

    def __add__(self, other: "Written") -> "Written":
        return Written(self.added + other.added, self.known + other.known)


class Writer:
    """Adds rows.

    Referenced records are written first, in a separate transaction, so that their identifiers
    remain valid if writing rows fails. Everything is written in the order of its digest, so that
    two writers of the same rows cannot deadlock.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._insert: Any = sqlite.insert if database.is_sqlite else postgresql.insert
        self._series: dict[tuple[Any, ...], int] = {}
        self._version_sets: dict[_Versions, int] = {}

    def add(self, rows: Iterable[Row]) -> Written:
        """Adds rows that are not in the database yet.

        Raises:
          HistoryError: the database fails; earlier chunks are kept, and repeating the import
            continues after them.
        """
        written = Written()
        for chunk in _chunks(rows, _CHUNK):
            written += self._add(chunk)
        return written

    def _add(self, rows: Sequence[Row]) -> Written:
        # Sorted dictionaries of the same rows have the same items.
        keyed = [(row, row.series, tuple(sorted(row.versions.items()))) for row in rows]
        self._refer({series for _, series, _ in keyed}, {versions for *_, versions in keyed})
        values = {row.content: (row, series, versions) for row, series, versions in keyed}
        statement = (
            self._insert(RESULTS)
            .on_conflict_do_nothing(index_elements=["content"])
            .returning(RESULTS.c.id)
        )
        parameters = [self._values(content, *values[content]) for content in sorted(values)]
        with self._database.writing() as connection:
            added = len(connection.execute(statement, parameters).fetchall())
        return Written(added, len(rows) - added)

    def _values(
        self, content: bytes, row: Row, series: tuple[Any, ...], versions: _Versions
    ) -> dict[str, Any]:
        return {
            **dict(zip(_PLAIN, _PLAIN_VALUES(row), strict=True)),
            "content": content,
            "series": self._series[series],
            "version_set": self._version_sets[versions],
            "time_us": microseconds(row.time),
            "extra": json.dumps(row.extra, allow_nan=False) if row.extra else "{}",
        }

    def _refer(self, series: set[tuple[Any, ...]], versions: set[_Versions]) -> None:
        """Ensures that all series and version sets have identifiers."""
        series = series - self._series.keys()
        versions = versions - self._version_sets.keys()
        if not series and not versions:
            return
        with self._database.writing() as connection:
            found_series = self._identifiers(
                connection, SERIES, {key: _series_values(key) for key in series}
            )
            found_sets = self._identifiers(
                connection,
                VERSION_SETS,
                {key: {"versions": canonical(dict(key))} for key in versions},
            )
            packages = [
                {"version_set": found_sets[key], "name": name, "version": version}
                for key in versions
                for name, version in key
            ]
            if packages:
                packages.sort(key=lambda item: (item["version_set"], item["name"]))
                connection.execute(self._insert(PACKAGES).on_conflict_do_nothing(), packages)
        # Only now: identifiers from a failed transaction are invalid.
        self._series |= found_series
        self._version_sets |= found_sets

    def _identifiers(
        self, connection: Connection, table: sa.Table, values: Mapping[Any, dict[str, Any]]
    ) -> dict[Any, int]:
        digests = {_digest(fields): key for key, fields in values.items()}
        if not digests:
            return {}
        parameters = [{"digest": d, **values[digests[d]]} for d in sorted(digests)]
        connection.execute(
            self._insert(table).on_conflict_do_nothing(index_elements=["digest"]), parameters
        )
        identifiers: dict[Any, int] = {}
        for chunk in _chunks(sorted(digests), 500):
            selected = sa.select(table.c.digest, table.c.id).where(table.c.digest.in_(chunk))
            identifiers |= {digests[bytes(d)]: number for d, number in connection.execute(selected)}
        return identifiers


def _series_values(series: Sequence[Any]) -> dict[str, Any]:
    values = dict(zip(DIMENSIONS, series, strict=True))
    return {**values, "options": json.dumps(list(values["options"]))}


def _digest(fields: Mapping[str, Any]) -> bytes:
    return hashlib.sha256(canonical(fields).encode()).digest()[:16]


def _chunks(items: Iterable[Any], size: int) -> Iterator[list[Any]]:
    iterator = iter(items)
    while chunk := list(islice(iterator, size)):
        yield chunk


@attrs.frozen(kw_only=True)
class Imported:
    """The result of an import.

    Attributes:
      files: number of files with at least one result.
      written: numbers of new and of known rows.
      refused: a sentence for each file, or part of one, that could not be read.
    """

    files: int
    written: Written
    refused: Sequence[str]


def import_files(
    database: Database, read: Callable[[Path], Contents], paths: Iterable[Path]
) -> Imported:
    """Adds the results of files that are not in the history yet.

    Args:
      database: database of the history.
      read: returns the content of a file; does not raise for invalid content.
      paths: paths of the files.

    Raises:
      HistoryError: the database fails; rows written until then are kept.
    """
    refused: list[str] = []
    fruitful: set[Path] = set()

    def rows() -> Iterator[Row]:
        for path in paths:
            converted, wrong = rows_of(path, read(path))
            refused.extend(wrong)
            if converted:
                fruitful.add(path)
            yield from converted

    written = Writer(database).add(rows())
    return Imported(files=len(fruitful), written=written, refused=refused)


def rows_of(path: Path, contents: Contents) -> tuple[list[Row], list[str]]:
    """Returns the rows of a file, and a sentence for each part that could not be converted."""
    rows, refused = [], list(contents.refused)
    for result in contents.results:
        # The file's modification time, if its content has no time.
        time = datetime.datetime.fromtimestamp(path.stat().st_mtime, datetime.UTC)
        try:
            rows.append(row_of(result, time=time))
        except RowError as error:
            refused.append(f"{path}: {result.name}: {error}")
    return rows, refused
