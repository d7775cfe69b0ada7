"""The flat view, for people who write SQL."""

from alembic import op

revision = "0002"
down_revision = "0001"

_TIMES = {
    "sqlite": "strftime('%Y-%m-%dT%H:%M:%SZ', r.time_us / 1000000, 'unixepoch')",
    "postgresql": "to_timestamp(r.time_us / 1000000.0)",
}
_VIEW = """
CREATE VIEW cbs_history AS
SELECT r.id, {time} AS time, s.source, s.workload, s.workload_digest, s.benchmark, s.framework,
  s.level, s.data_type, s.batch_size, s.backend, s.compiler, s.options, s.environment, s.device,
  s.machine, s.threads, v.versions, r.run_id, r.revision, r.program, r.status, r.reason,
  r.latency_ms, r.latency_low_ms, r.latency_high_ms, r.processes, r.compile_ms, r.warm_compile_ms,
  r.host_memory_mb, r.device_memory_mb, r.error, r.extra
FROM cbs_results r
JOIN cbs_series s ON s.id = r.series
JOIN cbs_version_sets v ON v.id = r.version_set
"""


def upgrade() -> None:
    """Creates the view `cbs_history`: one row per result, without joins."""
    time = _TIMES[op.get_bind().dialect.name]
    # In `sa.text`, colons in the format would start parameters.
    op.get_bind().exec_driver_sql(_VIEW.format(time=time))
