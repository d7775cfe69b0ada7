"""The database behind the history: SQLite in a file, or PostgreSQL by URL.

A million rows share a few thousand series and version sets, which are stored once. Rows are written
in bulk, without duplicates, alongside other writers.
"""

import contextlib
import datetime
import hashlib
import json
import operator
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import attrs
import sqlalchemy as sa
from filelock import FileLock
from filelock import Timeout as LockTimeout
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import URL, Connection, Engine, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from comparative_benchmark.errors import UsageError
from comparative_benchmark.reporting.history import HISTORY_VARIABLE, default_location
from comparative_benchmark.reporting.history.rows import (
    COLUMNS,
    DIMENSIONS,
    Contents,
    Row,
    RowError,
    canonical,
    microseconds,
    row_of,
)

METADATA = sa.MetaData()
# Fields of `Row` that each result has, in columns of the same names.
RESULT_FIELDS = tuple(COLUMNS)[list(COLUMNS).index("versions") + 1 :]
_NUMBERS: dict[Any, type[sa.Integer | sa.Double[float]]] = {
    int | None: sa.Integer,
    float | None: sa.Double,
}


def _columns(*names: str) -> "list[sa.Column[Any]]":
    """Returns columns for fields of `Row`: numbers or NULL, text, or JSON text."""
    return [
        sa.Column(name, _NUMBERS.get(COLUMNS[name], sa.Text), nullable=COLUMNS[name] in _NUMBERS)
        for name in names
    ]


SERIES = sa.Table(
    "cbs_series",
    METADATA,
    sa.Column("id", sa.Integer, primary_key=True),
    # Digest of the columns below: an index over all of them would be larger than the table.
    sa.Column("digest", sa.LargeBinary(16), nullable=False, unique=True),
    *_columns(*DIMENSIONS),
    sa.Index("cbs_series_workload", "workload"),
    sa.Index("cbs_series_benchmark", "benchmark"),
)

VERSION_SETS = sa.Table(
    "cbs_version_sets",
    METADATA,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("digest", sa.LargeBinary(16), nullable=False, unique=True),
    *_columns("versions"),
)

PACKAGES = sa.Table(
    "cbs_packages",
    METADATA,
    sa.Column("version_set", sa.Integer, sa.ForeignKey("cbs_version_sets.id"), primary_key=True),
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("version", sa.Text, nullable=False),
    sa.Index("cbs_packages_version", "name", "version"),
)

RESULTS = sa.Table(
    "cbs_results",
    METADATA,
    sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True),
    sa.Column("content", sa.LargeBinary(16), nullable=False, unique=True),
    sa.Column("series", sa.Integer, sa.ForeignKey("cbs_series.id"), nullable=False),
    sa.Column("version_set", sa.Integer, sa.ForeignKey("cbs_version_sets.id"), nullable=False),
    # Microseconds since 1970, UTC: both databases sort and compare integers alike.
    sa.Column("time_us", sa.BigInteger, nullable=False),
    *_columns(*RESULT_FIELDS),
    sa.Index("cbs_results_trend", "series", "time_us"),
    sa.Index("cbs_results_time", "time_us"),
    sa.Index("cbs_results_run", "run_id"),
)

# Alembic, which earlier versions used, gave the table this form.
VERSION = sa.Table(
    "cbs_history_version", METADATA, sa.Column("version_num", sa.String(32), primary_key=True)
)
# Revision 0001 has the tables, 0002 also the view.
HEAD = "0002"
_REVISIONS = ("0001", HEAD)
_TIMES = {
    "sqlite": "strftime('%Y-%m-%dT%H:%M:%SZ', r.time_us / 1000000, 'unixepoch')",
    "postgresql": "to_timestamp(r.time_us / 1000000.0)",
}

_WAIT_S = 60
_ATTEMPTS, _PAUSE_S = 20, 0.05
# An arbitrary number that other programs are unlikely to lock.
_ADVISORY_LOCK = 0x6362_7368
_WRITES = "cbs_writes"
# Large enough for few transactions, small enough to let other writers proceed.
_CHUNK = 5_000
_PLAIN = tuple(name for name in RESULT_FIELDS if name != "extra")
_PLAIN_VALUES = operator.attrgetter(*_PLAIN)
_Versions = tuple[tuple[str, str], ...]


class HistoryError(UsageError, RuntimeError):
    """The history cannot be opened, read or written; the message has the reason and the remedy."""


def database_url(location: str) -> URL:
    """Returns the URL of a location: a file's path, `sqlite:///PATH` or `postgresql://...`.

    Raises:
      HistoryError: the location has another form.
    """
    if "://" not in location:
        return URL.create("sqlite", database=str(Path(location).expanduser().absolute()))
    try:
        url = make_url(location)
    except (ArgumentError, ValueError) as error:
        # Not the location itself, because it may contain a password.
        kind = location.partition("://")[0]
        raise HistoryError(
            f"{kind}://... is not a database URL such as postgresql://USER@HOST:PORT/NAME"
        ) from error
    backend = url.get_backend_name()
    if backend == "sqlite":
        if not url.database or url.database == ":memory:":
            raise HistoryError(f"{location!r} contains no file path; expected sqlite:///PATH")
        return url.set(database=str(Path(url.database).expanduser().absolute()))
    if backend in ("postgresql", "postgres"):
        return url.set(drivername="postgresql+psycopg")
    raise HistoryError(
        f"{shown(url)}: unsupported database; expected a file path, sqlite:///PATH or "
        "postgresql://USER@HOST/NAME"
    )


def shown(url: URL) -> str:
    """Returns a location for messages, without the password."""
    if url.get_backend_name() == "sqlite":
        return str(url.database)
    return url.render_as_string(hide_password=True)


class Database:
    """Connections to a history whose tables are up to date."""

    def __init__(self, location: str | None = None, *, create: bool = True) -> None:
        """Opens a history and migrates it to this program's tables.

        Args:
          location: see `database_url`; None for the user's own history.
          create: whether to create it if it does not exist.

        Raises:
          HistoryError: it cannot be opened, is not a history, or belongs to a newer program.
        """
        self.url = database_url(location or default_location())
        self._file = Path(str(self.url.database)) if self.is_sqlite else None
        if self._file is not None and not self._file.exists():
            if not create:
                raise HistoryError(
                    f"no history database at {self._file}; create one with `cbs history import`, "
                    f"or choose another with --db or ${HISTORY_VARIABLE}"
                )
            try:
                self._file.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise HistoryError(f"{self._file.parent} cannot be created: {error}") from error
        self.engine = _engine(self.url)
        try:
            with self._clear_errors():
                self._migrate()
        except BaseException:
            self.engine.dispose()
            raise

    @property
    def is_sqlite(self) -> bool:
        """Whether the database is a file."""
        return self.url.get_backend_name() == "sqlite"

    def __str__(self) -> str:
        return shown(self.url)

    def close(self) -> None:
        """Closes all connections."""
        self.engine.dispose()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Yields a connection within one transaction.

        Raises:
          HistoryError: the database fails.
        """
        with self._clear_errors(), self.engine.connect() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Yields a connection whose transaction is committed at the end, or rolled back.

        Raises:
          HistoryError: the database fails.
        """
        with (
            self._clear_errors(),
            self.engine.execution_options(**{_WRITES: True}).begin() as connection,
        ):
            yield connection

    @contextmanager
    def _clear_errors(self) -> Iterator[None]:
        try:
            yield
        except SQLAlchemyError as error:
            # The driver's message, without the statement and its thousand parameters.
            origin = getattr(error, "orig", None) or error
            message = " ".join(str(origin).split()) or type(origin).__name__
            raise HistoryError(f"{self}: {message}") from error

    def _migrate(self) -> None:
        with self.reading() as connection:
            if _revision(connection, self) == HEAD:
                return
        try:
            # SQLite has no lock that survives schema changes.
            with (
                FileLock(f"{self._file}.lock", timeout=_WAIT_S)
                if self._file
                else contextlib.nullcontext()
            ):
                self._write_ahead()
                with self.writing() as connection:
                    if not self._file:
                        connection.execute(
                            sa.text("SELECT pg_advisory_xact_lock(:key)"), {"key": _ADVISORY_LOCK}
                        )
                    # Another process may have been faster.
                    if (revision := _revision(connection, self)) != HEAD:
                        upgrade(connection, revision)
        except LockTimeout as error:
            raise HistoryError(
                f"{self}: another process has been migrating it for {_WAIT_S} s; try again"
            ) from error
        except OSError as error:
            raise HistoryError(f"{self} cannot be written: {error}") from error

    def _write_ahead(self) -> None:
        """Enables write-ahead logging, so that readers of a file do not wait for a writer."""
        if not self.is_sqlite:
            return
        with self.reading() as connection:
            if _revision(connection, self) is not None:
                return
        # Impossible within a transaction, or while another process has the file open. Without it
        # readers wait, which is not a reason to fail.
        with contextlib.closing(self.engine.raw_connection()) as raw:
            for _ in range(_ATTEMPTS):
                try:
                    raw.cursor().execute("PRAGMA journal_mode = WAL")
                    return
                except sqlite3.OperationalError:
                    time.sleep(_PAUSE_S)


def upgrade(connection: Connection, revision: str | None) -> None:
    """Migrates tables of a revision, or of None, to `HEAD` in the connection's transaction."""
    if revision is None:
        METADATA.create_all(connection)
    columns = [
        f"r.id, {_TIMES[connection.dialect.name]} AS time",
        *(f"s.{name}" for name in DIMENSIONS),
        "v.versions",
        *(f"r.{name}" for name in RESULT_FIELDS if name != "identity"),
    ]
    # In `sa.text`, colons in the format of the time would start parameters.
    connection.exec_driver_sql(
        f"CREATE VIEW cbs_history AS SELECT {', '.join(columns)} FROM cbs_results r "  # noqa: S608
        "JOIN cbs_series s ON s.id = r.series JOIN cbs_version_sets v ON v.id = r.version_set"
    )
    connection.execute(VERSION.delete())
    connection.execute(VERSION.insert().values(version_num=HEAD))


def _revision(connection: Connection, database: Database) -> str | None:
    """Returns the revision of the tables; None before they are created."""
    names = sa.inspect(connection).get_table_names()
    if VERSION.name not in names:
        foreign = names if database.is_sqlite else [n for n in names if n.startswith("cbs_")]
        if foreign:
            raise HistoryError(
                f"{database} is not a history database: it contains another program's tables "
                f"({', '.join(sorted(foreign)[:3])}); choose another database with --db"
            )
        return None
    revision = connection.execute(sa.select(VERSION.c.version_num)).scalar()
    known = revision is None or str(revision) in _REVISIONS
    if not known and str(revision) < HEAD:
        raise HistoryError(f"{database} is damaged: unknown table revision {str(revision)!r}")
    if not known:
        raise HistoryError(
            f"{database} was written by a newer version of cbs (table revision {revision}, "
            f"supported up to {HEAD}); install that version"
        )
    return revision


def _engine(url: URL) -> Engine:
    if url.get_backend_name() != "sqlite":
        return sa.create_engine(url)
    engine = sa.create_engine(url, connect_args={"timeout": _WAIT_S})
    sa.event.listen(engine, "connect", _prepare)
    sa.event.listen(engine, "begin", _begin)
    return engine


def _prepare(connection: Any, _: Any) -> None:
    # `_begin` starts transactions, because the driver's own start too late to lock.
    connection.isolation_level = None
    cursor = connection.cursor()
    try:
        for setting in (
            "synchronous = NORMAL",
            "foreign_keys = ON",
            # Like PostgreSQL.
            "case_sensitive_like = ON",
            # 64 MB: holds the index of a million rows during writes.
            "cache_size = -64000",
        ):
            cursor.execute(f"PRAGMA {setting}")
    finally:
        cursor.close()


def _begin(connection: Connection) -> None:
    # A writer that began as a reader could find at its first write that another came first.
    writes = connection.get_execution_options().get(_WRITES)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


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
