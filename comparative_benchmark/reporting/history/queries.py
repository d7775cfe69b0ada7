"""Queries to the history, for tables and for plots of latency over time.

User input is passed to the database only as parameters.
"""

import datetime
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, get_origin

import attrs
import sqlalchemy as sa

from comparative_benchmark.reporting.history.database import (
    PACKAGES,
    RESULT_FIELDS,
    RESULTS,
    SERIES,
    VERSION_SETS,
    Database,
)
from comparative_benchmark.reporting.history.rows import (
    COLUMNS,
    DIMENSIONS,
    OK,
    Place,
    Row,
    TrendPoint,
    competitor,
    count_of,
    json_value,
    microseconds,
    published_device,
    timestamp,
)

Record = dict[str, Any]

# Columns of a result that can be filtered by text, like the columns of its series.
RESULT_TEXTS = ("run_id", "revision", "program", "status")
_LIKE = str.maketrans({"\\": r"\\", "%": r"\%", "_": r"\_", "*": "%", "?": "_"})
_JSON_COLUMNS = [name for name, kind in COLUMNS.items() if get_origin(kind) in (tuple, dict)]


@attrs.frozen(kw_only=True)
class Filter:
    """Selects results; all conditions must hold, and any of several values of one condition.

    Attributes:
      texts: patterns by column: of `DIMENSIONS` or `RESULT_TEXTS`, with `*` and `?` as in a shell;
        other characters are literal, and case matters.
      versions: patterns by package name.
      since, until: with time zone; `since` is inclusive, `until` exclusive.
      newest: limit to the latest results; None for all.
    """

    texts: Mapping[str, Sequence[str]] = attrs.field(factory=dict)
    versions: Mapping[str, Sequence[str]] = attrs.field(factory=dict)
    since: datetime.datetime | None = None
    until: datetime.datetime | None = None
    newest: int | None = None


@attrs.frozen(kw_only=True)
class Series:
    """A trend as listed by `cbs history ls`."""

    dimensions: Mapping[str, Any]
    results: int
    first: datetime.datetime
    last: datetime.datetime
    last_status: str


def records(database: Database, which: Filter) -> Iterator[Record]:
    """Yields results as flat mappings of `COLUMNS`, oldest first.

    Raises:
      HistoryError: the database fails.
    """
    order = [RESULTS.c.time_us, RESULTS.c.id]
    query = sa.select(
        RESULTS.c.time_us,
        *(SERIES.c[name] for name in DIMENSIONS),
        VERSION_SETS.c.versions,
        *(RESULTS.c[name] for name in RESULT_FIELDS),
    ).select_from(RESULTS.join(SERIES).join(VERSION_SETS))
    query = query.where(*conditions(which))
    if which.newest is not None:
        query = query.order_by(*(column.desc() for column in order)).limit(which.newest)
        with database.reading() as connection:
            rows = connection.execute(query).fetchall()
        yield from map(_record, reversed(rows))
        return
    with database.reading() as connection:
        options = {"stream_results": True, "yield_per": 5_000}
        for row in connection.execute(query.order_by(*order), execution_options=options):
            yield _record(row)


def rows(database: Database, which: Filter) -> Iterator[Row]:
    """Yields results as they were written, oldest first; see `records`."""
    for record in records(database, which):
        yield Row(**{**record, "options": tuple(record["options"])})


def count(database: Database, which: Filter) -> int:
    """Returns the number of results; `newest` is ignored."""
    query = sa.select(sa.func.count()).select_from(RESULTS.join(SERIES)).where(*conditions(which))
    with database.reading() as connection:
        return int(connection.execute(query).scalar_one())


def series(database: Database, which: Filter) -> list[Series]:
    """Returns the trends that have results, sorted by their dimensions."""
    counted = (
        sa.select(
            RESULTS.c.series,
            sa.func.count().label("results"),
            sa.func.min(RESULTS.c.time_us).label("first"),
            sa.func.max(RESULTS.c.time_us).label("last"),
        )
        .select_from(RESULTS.join(SERIES))
        .where(*conditions(which))
        .group_by(RESULTS.c.series)
        .subquery()
    )
    # Of several results with the same time, the one written last.
    newest = (
        sa.select(RESULTS.c.status)
        .where(RESULTS.c.series == counted.c.series, RESULTS.c.time_us == counted.c.last)
        .order_by(RESULTS.c.id.desc())
        .limit(1)
        .scalar_subquery()
    )
    columns = [SERIES.c[name] for name in DIMENSIONS]
    query = (
        sa.select(*columns, counted.c.results, counted.c.first, counted.c.last, newest)
        .select_from(counted.join(SERIES, SERIES.c.id == counted.c.series))
        .order_by(*columns)
    )
    with database.reading() as connection:
        rows = connection.execute(query).fetchall()
    return [
        Series(
            dimensions=decoded(dict(zip(DIMENSIONS, row, strict=False))),
            results=row[-4],
            first=timestamp(row[-3]),
            last=timestamp(row[-2]),
            last_status=row[-1],
        )
        for row in rows
    ]


def conditions(which: Filter) -> list[sa.ColumnElement[bool]]:
    """Returns the conditions of a filter on the joined tables `RESULTS` and `SERIES`."""
    terms: list[sa.ColumnElement[bool]] = []
    for name, patterns in which.texts.items():
        column = RESULTS.c[name] if name in RESULT_TEXTS else SERIES.c[name]
        terms.append(sa.or_(*(_matches(column, name, pattern) for pattern in patterns)))
    for package, patterns in which.versions.items():
        has_it = PACKAGES.c.version_set == RESULTS.c.version_set
        versions = sa.or_(*(_like(PACKAGES.c.version, pattern) for pattern in patterns))
        terms.append(sa.exists().where(sa.and_(has_it, PACKAGES.c.name == package, versions)))
    if which.since is not None:
        terms.append(RESULTS.c.time_us >= microseconds(which.since))
    if which.until is not None:
        terms.append(RESULTS.c.time_us < microseconds(which.until))
    return terms


def _matches(column: Any, name: str, pattern: str) -> sa.ColumnElement[bool]:
    if name in ("batch_size", "threads"):
        return sa.false() if (number := count_of(pattern)) is None else column == number
    if name == "options":
        # The stored list; use `*option*` to find one of several options.
        return sa.or_(_like(column, pattern), _like(column, f'*"{pattern}"*'))
    return _like(column, pattern)


def _like(column: Any, pattern: str) -> sa.ColumnElement[bool]:
    if "*" not in pattern and "?" not in pattern:
        # Plain equality can use an index.
        equal: sa.ColumnElement[bool] = column == pattern
        return equal
    like: sa.ColumnElement[bool] = column.like(pattern.translate(_LIKE), escape="\\")
    return like


def _record(row: Sequence[Any]) -> Record:
    record = dict(zip(COLUMNS, row, strict=True))
    record["time"] = timestamp(record["time"])
    return decoded(record)


def decoded(record: Record) -> Record:
    """Decodes the columns that hold JSON text."""
    for name in _JSON_COLUMNS:
        if name in record:
            record[name] = json_value(record[name])
    return record


class Night(NamedTuple):
    """One result of a series; see `Row`. `version_set` and `id` are keys of the database."""

    id: int
    time_us: int
    run_id: str
    revision: str
    version_set: int
    program: str
    status: str
    reason: str
    latency_ms: float | None
    latency_low_ms: float | None
    latency_high_ms: float | None
    compile_ms: float | None
    warm_compile_ms: float | None
    host_memory_mb: float | None
    device_memory_mb: float | None
    error: float | None

    @property
    def time(self) -> datetime.datetime:
        """When its run began."""
        return timestamp(self.time_us)


@attrs.frozen(kw_only=True)
class Window:
    """The latest nights of all series that a filter matches.

    Attributes:
      nights: by series, oldest first; never empty.
      dimensions: dimensions of each series.
      version_sets: package versions by `Night.version_set`.
    """

    nights: Mapping[int, list[Night]]
    dimensions: Mapping[int, Mapping[str, Any]]
    version_sets: Mapping[int, Mapping[str, str]]


def load(database: Database, which: Filter, *, window: int) -> Window:
    """Reads the latest `window` results of each series.

    Raises:
      HistoryError: the database fails.
    """
    newest_first = (RESULTS.c.time_us.desc(), RESULTS.c.id.desc())
    rank = sa.func.row_number().over(partition_by=RESULTS.c.series, order_by=newest_first)
    ranked = (
        sa.select(RESULTS.c.series, *(RESULTS.c[name] for name in Night._fields), rank.label("r"))
        .select_from(RESULTS.join(SERIES))
        .where(*conditions(which))
        .subquery()
    )
    query = (
        sa.select(ranked.c.series, *(ranked.c[name] for name in Night._fields))
        .where(ranked.c.r <= window)
        .order_by(ranked.c.series, ranked.c.time_us, ranked.c.id)
    )
    nights: defaultdict[int, list[Night]] = defaultdict(list)
    with database.reading() as connection:
        for row in connection.execute(query).fetchall():
            nights[row[0]].append(Night(*row[1:]))
        columns = [SERIES.c[name] for name in DIMENSIONS]
        dimensions = {
            row[0]: decoded(dict(zip(DIMENSIONS, row[1:], strict=True)))
            for row in connection.execute(sa.select(SERIES.c.id, *columns))
            if row[0] in nights
        }
        sets = sa.select(VERSION_SETS.c.id, VERSION_SETS.c.versions)
        version_sets = {
            row[0]: decoded({"versions": row[1]})["versions"] for row in connection.execute(sets)
        }
    return Window(nights=dict(nights), dimensions=dimensions, version_sets=version_sets)


class HistoryTrends:
    """The trends of a history; see `open_trends`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._series: defaultdict[Place, list[int]] = defaultdict(list)
        with database.reading() as connection:
            columns = [SERIES.c[name] for name in DIMENSIONS]
            for number, *values in connection.execute(sa.select(SERIES.c.id, *columns)):
                fields = decoded(dict(zip(DIMENSIONS, values, strict=True)))
                key = (fields["benchmark"], competitor(fields), published_device(fields["device"]))
                where = (fields["machine"], fields["workload_digest"], fields["threads"])
                self._series[*key, *where].append(number)

    def trend(self, place: Place) -> Sequence[TrendPoint]:
        """Returns the latencies of `ok` results, oldest first; empty for unknown cases.

        Args:
          place: name of the benchmark case; competitor as `backend:compiler+option`, with `@name`
            of its environment; device, see `published_device`; CPU model of the machine; digest of
            the workload; number of threads per worker.

        Raises:
          HistoryError: the database fails.
        """
        numbers = self._series.get(place)
        if not numbers:
            return ()
        query = (
            sa.select(
                RESULTS.c.time_us,
                RESULTS.c.latency_ms,
                RESULTS.c.latency_low_ms,
                RESULTS.c.latency_high_ms,
                VERSION_SETS.c.versions,
            )
            .select_from(RESULTS.join(VERSION_SETS))
            .where(
                RESULTS.c.series.in_(numbers),
                RESULTS.c.status == OK,
                RESULTS.c.latency_ms.is_not(None),
            )
            .order_by(RESULTS.c.time_us, RESULTS.c.id)
        )
        with self._database.reading() as connection:
            rows = connection.execute(query).fetchall()
        return [TrendPoint(timestamp(row[0]), *row[1:4], json_value(row[4])) for row in rows]

    def close(self) -> None:
        """Closes the database."""
        self._database.close()


def open_trends(location: str | None = None) -> HistoryTrends:
    """Opens the trends of an existing history.

    Args:
      location: a file's path or a URL, as for `cbs history --db`; None for the user's own.

    Raises:
      HistoryError: the history does not exist or cannot be read.
    """
    database = Database(location, create=False)
    try:
        return HistoryTrends(database)
    except BaseException:
        database.close()
        raise
