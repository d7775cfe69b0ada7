"""Latency over time, for plots."""

import datetime
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import sqlalchemy as sa

from comparative_benchmark.reporting.history.database import RESULTS, SERIES, VERSION_SETS, Database
from comparative_benchmark.reporting.history.output import competitor
from comparative_benchmark.reporting.history.portable import json_value, moment
from comparative_benchmark.reporting.history.queries import decoded
from comparative_benchmark.reporting.history.rows import DIMENSIONS, OK

_Place = tuple[str, str, str, str]


class TrendPoint(NamedTuple):
    """A latency in ms, its 95 % interval if there is one, and the installed versions."""

    time: datetime.datetime
    value: float
    low: float | None
    high: float | None
    versions: Mapping[str, str]


class HistoryTrends:
    """The trends of a history; see `open_trends`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._series: defaultdict[_Place, list[int]] = defaultdict(list)
        with database.reading() as connection:
            columns = [SERIES.c[name] for name in DIMENSIONS]
            for number, *values in connection.execute(sa.select(SERIES.c.id, *columns)):
                fields = decoded(dict(zip(DIMENSIONS, values, strict=True)))
                key = (fields["benchmark"], competitor(fields))
                self._series[*key, fields["device"], fields["machine"]].append(number)

    def trend(
        self, case: str, competitor: str, *, device: str, machine: str
    ) -> Sequence[TrendPoint]:
        """Returns the latencies of `ok` results, oldest first; empty for unknown cases.

        Args:
          case: name of the benchmark case.
          competitor: `backend:compiler+option`, with `@name` of its environment.
          device: device of the results.
          machine: CPU model of the machine.

        Raises:
          HistoryError: the database fails.
        """
        numbers = self._series.get((case, competitor, device, machine))
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
            found = connection.execute(query).fetchall()
        return [TrendPoint(moment(row[0]), *row[1:4], json_value(row[4])) for row in found]

    def close(self) -> None:
        """Closes the database."""
        self._database.close()


def open_trends(location: str | None = None) -> HistoryTrends:
    """Opens the trends of an existing history.

    Args:
      location: a file's path or a URL, as for `cbs history --db`; None for the user's own.

    Raises:
      HistoryError: there is no history, or it cannot be read.
    """
    database = Database(location, create=False)
    try:
        return HistoryTrends(database)
    except BaseException:
        database.close()
        raise
