"""A history as the first version of this program made it."""

import sqlalchemy as sa
from sqlalchemy.engine import Connection

METADATA = sa.MetaData()


def _texts(*names: str) -> "list[sa.Column[str]]":
    return [sa.Column(name, sa.Text, nullable=False) for name in names]


def _numbers(*names: str) -> "list[sa.Column[float]]":
    return [sa.Column(name, sa.Double) for name in names]


sa.Table(
    "cbs_series",
    METADATA,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("digest", sa.LargeBinary(16), nullable=False, unique=True),
    *_texts("source", "workload", "workload_digest", "benchmark", "framework", "level"),
    *_texts("data_type"),
    sa.Column("batch_size", sa.Integer),
    *_texts("backend", "compiler", "options", "environment", "device", "machine"),
    sa.Column("threads", sa.Integer),
    sa.Index("cbs_series_workload", "workload"),
    sa.Index("cbs_series_benchmark", "benchmark"),
)
sa.Table(
    "cbs_version_sets",
    METADATA,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("digest", sa.LargeBinary(16), nullable=False, unique=True),
    *_texts("versions"),
)
sa.Table(
    "cbs_packages",
    METADATA,
    sa.Column("version_set", sa.Integer, sa.ForeignKey("cbs_version_sets.id"), primary_key=True),
    sa.Column("name", sa.Text, primary_key=True),
    *_texts("version"),
    sa.Index("cbs_packages_version", "name", "version"),
)
sa.Table(
    "cbs_results",
    METADATA,
    sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True),
    sa.Column("content", sa.LargeBinary(16), nullable=False, unique=True),
    sa.Column("series", sa.Integer, sa.ForeignKey("cbs_series.id"), nullable=False),
    sa.Column("version_set", sa.Integer, sa.ForeignKey("cbs_version_sets.id"), nullable=False),
    sa.Column("time_us", sa.BigInteger, nullable=False),
    *_texts("run_id", "revision", "program", "status", "reason"),
    *_numbers("latency_ms", "latency_low_ms", "latency_high_ms"),
    sa.Column("processes", sa.Integer),
    *_numbers("compile_ms", "warm_compile_ms", "host_memory_mb", "device_memory_mb", "error"),
    *_texts("identity", "extra"),
    sa.Index("cbs_results_trend", "series", "time_us"),
    sa.Index("cbs_results_time", "time_us"),
    sa.Index("cbs_results_run", "run_id"),
)


def create_old_history(connection: Connection) -> None:
    """Creates the tables of revision 0001, which had no view."""
    METADATA.create_all(connection)
    connection.execute(
        sa.text("CREATE TABLE cbs_history_version (version_num VARCHAR(32) NOT NULL PRIMARY KEY)")
    )
    connection.execute(sa.text("INSERT INTO cbs_history_version VALUES ('0001')"))
