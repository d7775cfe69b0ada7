"""Which columns of the history a user may filter by, and by which option."""

# Option by column; a column's own name is the option where it has no other.
FILTERS = {
    "workload": "--workload",
    "benchmark": "--benchmark-name",
    "framework": "--framework",
    "level": "--level",
    "data_type": "--data-type",
    "batch_size": "--batch-size",
    "backend": "--backend",
    "compiler": "--compiler",
    "options": "--option",
    "environment": "--environment",
    "device": "--device",
    "machine": "--machine",
    "threads": "--threads",
    "workload_digest": "--workload-digest",
    "source": "--source",
    "run_id": "--run",
    "revision": "--revision",
    "program": "--program",
    "status": "--status",
}
