"""The tables."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Creates the tables; spelled out, because a later version's tables differ."""
    op.create_table(
        "cbs_series",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("digest", sa.LargeBinary(16), nullable=False, unique=True),
        *_texts("source", "workload", "workload_digest", "benchmark", "framework", "level"),
        *_texts("data_type"),
        sa.Column("batch_size", sa.Integer),
        *_texts("backend", "compiler", "options", "environment", "device", "machine"),
        sa.Column("threads", sa.Integer),
    )
    op.create_index("cbs_series_workload", "cbs_series", ["workload"])
    op.create_index("cbs_series_benchmark", "cbs_series", ["benchmark"])
    op.create_table(
        "cbs_version_sets",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("digest", sa.LargeBinary(16), nullable=False, unique=True),
        *_texts("versions"),
    )
    op.create_table(
        "cbs_packages",
        sa.Column(
            "version_set", sa.Integer, sa.ForeignKey("cbs_version_sets.id"), primary_key=True
        ),
        sa.Column("name", sa.Text, primary_key=True),
        *_texts("version"),
    )
    op.create_index("cbs_packages_version", "cbs_packages", ["name", "version"])
    op.create_table(
        "cbs_results",
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
    )
    op.create_index("cbs_results_trend", "cbs_results", ["series", "time_us"])
    op.create_index("cbs_results_time", "cbs_results", ["time_us"])
    op.create_index("cbs_results_run", "cbs_results", ["run_id"])


def _texts(*names: str) -> "list[sa.Column[str]]":
    return [sa.Column(name, sa.Text, nullable=False) for name in names]


def _numbers(*names: str) -> "list[sa.Column[float]]":
    return [sa.Column(name, sa.Double) for name in names]
