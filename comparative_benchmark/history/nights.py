"""The nights of each series, as far as regressions need them."""

import datetime
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, NamedTuple

import attrs
import sqlalchemy as sa

from comparative_benchmark.history.database import Database
from comparative_benchmark.history.moments import moment
from comparative_benchmark.history.queries import Filter, conditions, decoded
from comparative_benchmark.history.rows import DIMENSIONS
from comparative_benchmark.history.tables import RESULTS, SERIES, VERSION_SETS


class Night(NamedTuple):
    """One result of a series; see `Row`. `version_set` and `id` are the database's own."""

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
        return moment(self.time_us)


@attrs.frozen(kw_only=True)
class Window:
    """The latest nights of all series that a filter lets through.

    Attributes:
      nights: by series, oldest first; never empty.
      dimensions: of each series.
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
