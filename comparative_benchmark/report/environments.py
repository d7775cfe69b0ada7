"""How the environments of several runs differ."""

from collections.abc import Sequence
from typing import Any

import attrs

from comparative_benchmark.report import wording
from comparative_benchmark.results.codec import plain
from comparative_benchmark.results.record import Run

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


def environment_diff(runs: Sequence[Run], baseline: Sequence[Run] = ()) -> EnvironmentDiff:
    """Returns how runs differ: the latest eight of them, two at most of a baseline.

    Args:
      runs: of the results, oldest first.
      baseline: of the baseline results, oldest first.
    """
    old = baseline[-2:]
    new = runs[-(_MOST_RUNS - len(old)) :]
    facts = [_facts(run) for run in (*old, *new)]
    names = dict.fromkeys(name for found in facts for name in found)
    rows = [(name, [found.get(name, _ABSENT) for found in facts]) for name in names]
    differing = [(name, values) for name, values in rows if len(set(values)) > 1]
    headings = [f"baseline {wording.start(run)}" for run in old]
    return EnvironmentDiff(
        runs=headings + [wording.start(run) for run in new],
        rows=differing,
        left_out=len(baseline) + len(runs) - len(facts),
        alike=len(rows) - len(differing),
    )


def _facts(run: Run) -> dict[str, str]:
    around = run.execution_environment
    found = {
        f"machine: {name}": _shown(value)
        for name, value in plain(around.host).items()
        if name not in _VOLATILE
    }
    found["harness revision"] = _shown(around.git_revision)
    found["command"] = " ".join(run.trigger.command[1:]) or _ABSENT
    for package in around.python_environment:
        found[f"package: {package.name}"] = package.version
    for name, environment in around.environments.items():
        found[f"environment {name}: python"] = environment.python
        found[f"environment {name}: python_version"] = environment.python_version
    return found


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or _ABSENT
    return _ABSENT if value is None else str(value)
