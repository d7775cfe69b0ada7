"""In what the environments of several runs differ."""

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from comparative_benchmark.results.compare_samples import listed, mapping

_MOST_RUNS = 8
_ABSENT = "-"
# What is different each time and says nothing of the machine.
_VOLATILE = ("memory_available_bytes", "load_average")


@attrs.frozen(kw_only=True)
class EnvironmentDiff:
    """A table of differences.

    Attributes:
      runs: heading of each column: when it began; those of the baseline file are named so.
      rows: name of a fact, and its value in each run.
      left_out: how many older runs are not shown.
      alike: how many facts are the same in all.
    """

    runs: Sequence[str]
    rows: Sequence[tuple[str, Sequence[str]]]
    left_out: int
    alike: int


def environment_diff(
    runs: Sequence[Mapping[str, Any]], baseline: Sequence[Mapping[str, Any]] = ()
) -> EnvironmentDiff:
    """Returns in what runs differ; the latest eight of them, and no more than two of a baseline.

    Args:
      runs: of the results, oldest first.
      baseline: of the baseline results, oldest first.
    """
    old, new = list(baseline)[-2:], list(runs)
    shown = [*old, *new[-(_MOST_RUNS - len(old)) :]]
    facts = [_facts(run) for run in shown]
    names = list(dict.fromkeys(name for found in facts for name in found))
    rows = [(name, [found.get(name, _ABSENT) for found in facts]) for name in names]
    differing = [(name, values) for name, values in rows if len(set(values)) > 1]
    return EnvironmentDiff(
        runs=[
            f"{'baseline ' if position < len(old) else ''}{_heading(run)}"
            for position, run in enumerate(shown)
        ],
        rows=differing,
        left_out=len(old) + len(new) - len(shown) + len(baseline) - len(old),
        alike=len(rows) - len(differing),
    )


def _heading(run: Mapping[str, Any]) -> str:
    timestamp = mapping(run, "trigger").get("timestamp")
    return str(timestamp or run.get("run_id") or "unknown").replace("T", " ")[:16]


def _facts(run: Mapping[str, Any]) -> dict[str, str]:
    around = mapping(run, "execution_environment")
    found = {
        f"machine: {name}": _shown(value)
        for name, value in mapping(around, "host").items()
        if name not in _VOLATILE
    }
    found["harness revision"] = _shown(around.get("git_revision"))
    found["command"] = " ".join(map(str, listed(mapping(run, "trigger"), "command")[1:])) or _ABSENT
    for package in listed(around, "python_environment"):
        if isinstance(package, Mapping):
            found[f"package: {package.get('name')}"] = _shown(package.get("version"))
    for name, environment in mapping(around, "environments").items():
        for fact, value in environment.items() if isinstance(environment, Mapping) else ():
            if not isinstance(value, (list, Mapping)):
                found[f"environment {name}: {fact}"] = _shown(value)
    return found


def _shown(value: Any) -> str:
    if value is None:
        return _ABSENT
    if isinstance(value, list):
        return ", ".join(map(str, value)) or _ABSENT
    return str(value)
