"""One trial as it stands in a results file: a superset of the OpenXLA suite's shape.

{"definition": {...}, "status": ..., "metrics": {"framework_level" | "compiler_level": {...}}}
"""

from collections.abc import Mapping
from typing import Any

Record = dict[str, Any]
# Case, competitor, device.
TrialKey = tuple[str, str, str]


def key_of(record: Mapping[str, Any]) -> TrialKey:
    """Returns what tells a record from others, as `Trial.key` does."""
    definition = record["definition"]
    return (definition["benchmark_name"], competitor_of(definition), definition["device"])


def competitor_of(definition: Mapping[str, Any]) -> str:
    """Returns the name of the competitor, as `str(Competitor)` does."""
    environment = definition.get("environment")
    where = f"@{environment['name']}" if environment else ""
    return f"{definition['backend']}:{definition['compiler']}{where}"


def metrics_of(record: Mapping[str, Any]) -> Record:
    """Returns the metrics of a record, whatever their level."""
    metrics: Record = next(iter(record["metrics"].values()))
    return metrics
