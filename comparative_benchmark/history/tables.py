"""Tables of the history, as the newest migration leaves them.

A row of `cbs_history` (a view) is flat. Below it, what thousands of rows share is kept once: the
dimensions of a trend, and a set of package versions.
"""

import sqlalchemy as sa

METADATA = sa.MetaData()

SERIES = sa.Table(
    "cbs_series",
    METADATA,
    sa.Column("id", sa.Integer, primary_key=True),
    # Digest of the columns below: an index over all of them would be larger than the table.
    sa.Column("digest", sa.LargeBinary(16), nullable=False, unique=True),
    sa.Column("source", sa.Text, nullable=False),
    sa.Column("workload", sa.Text, nullable=False),
    sa.Column("workload_digest", sa.Text, nullable=False),
    sa.Column("benchmark", sa.Text, nullable=False),
    sa.Column("framework", sa.Text, nullable=False),
    sa.Column("level", sa.Text, nullable=False),
    sa.Column("data_type", sa.Text, nullable=False),
    sa.Column("batch_size", sa.Integer),
    sa.Column("backend", sa.Text, nullable=False),
    sa.Column("compiler", sa.Text, nullable=False),
    # JSON list of text.
    sa.Column("options", sa.Text, nullable=False),
    sa.Column("environment", sa.Text, nullable=False),
    sa.Column("device", sa.Text, nullable=False),
    sa.Column("machine", sa.Text, nullable=False),
    sa.Column("threads", sa.Integer),
    sa.Index("cbs_series_workload", "workload"),
    sa.Index("cbs_series_benchmark", "benchmark"),
)

VERSION_SETS = sa.Table(
    "cbs_version_sets",
    METADATA,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("digest", sa.LargeBinary(16), nullable=False, unique=True),
    # JSON object of text.
    sa.Column("versions", sa.Text, nullable=False),
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
    # Microseconds since 1970, UTC: both databases sort and compare it in the same way.
    sa.Column("time_us", sa.BigInteger, nullable=False),
    sa.Column("run_id", sa.Text, nullable=False),
    sa.Column("revision", sa.Text, nullable=False),
    sa.Column("program", sa.Text, nullable=False),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("latency_ms", sa.Double),
    sa.Column("latency_low_ms", sa.Double),
    sa.Column("latency_high_ms", sa.Double),
    sa.Column("processes", sa.Integer),
    sa.Column("compile_ms", sa.Double),
    sa.Column("warm_compile_ms", sa.Double),
    sa.Column("host_memory_mb", sa.Double),
    sa.Column("device_memory_mb", sa.Double),
    sa.Column("error", sa.Double),
    sa.Column("identity", sa.Text, nullable=False),
    # JSON object.
    sa.Column("extra", sa.Text, nullable=False),
    sa.Index("cbs_results_trend", "series", "time_us"),
    sa.Index("cbs_results_time", "time_us"),
    sa.Index("cbs_results_run", "run_id"),
)
