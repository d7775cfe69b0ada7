"""Sections of the page on environments, profiles, explanations, and scripts."""

import math
import os
import urllib.parse
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

import attrs
from msgspec import UNSET

from comparative_benchmark.analysis.roofline.ceilings import Ceilings
from comparative_benchmark.backends.operator_profile import OperatorProfile
from comparative_benchmark.reporting.report import wording
from comparative_benchmark.reporting.report.columns import Json, short
from comparative_benchmark.reporting.report.inputs import ReportCase
from comparative_benchmark.results import published
from comparative_benchmark.results.comparing.explanations import Explanation, Part, Side, explain
from comparative_benchmark.results.published import SUFFIX
from comparative_benchmark.results.record import Result, Run, Status, Throughput
from comparative_benchmark.results.results_file import plain
from comparative_benchmark.terminal.tables import digits, rate_text, script_name, share_text

_MOST_RUNS = 8
_ABSENT = "-"
# Properties that always differ and do not characterise the machine.
_VOLATILE = ("memory_available_bytes", "load_average")


@attrs.frozen(kw_only=True)
class EnvironmentDiff:
    """A table of differences.

    Attributes:
      runs: start of each run, as column headings; runs of the baseline file are marked.
      rows: name of a property, and its value in each run.
      left_out: number of older runs that are not shown.
      alike: number of properties that are equal in all runs.
    """

    runs: Sequence[str]
    rows: Sequence[tuple[str, Sequence[str]]]
    left_out: int
    alike: int


def environment_diff(runs: Sequence[Run], baseline: Sequence[Run] = ()) -> EnvironmentDiff:
    """Returns the differences between the latest eight runs, at most two of them baseline runs.

    Args:
      runs: runs of the results, oldest first.
      baseline: runs of the baseline results, oldest first.
    """
    old = baseline[-2:]
    new = runs[-(_MOST_RUNS - len(old)) :]
    facts = [_facts(run) for run in (*old, *new)]
    names = dict.fromkeys(name for host in facts for name in host)
    rows = [(name, [host.get(name, _ABSENT) for host in facts]) for name in names]
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
    facts = {
        f"machine: {name}": _shown(value)
        for name, value in plain(around.host).items()
        if name not in _VOLATILE
    }
    facts["harness revision"] = _shown(around.git_revision)
    facts["command"] = " ".join(run.trigger.command[1:]) or _ABSENT
    for package in around.python_environment:
        facts[f"package: {package.name}"] = package.version
    for name, environment in around.environments.items():
        facts[f"environment {name}: python"] = environment.python
        facts[f"environment {name}: python_version"] = environment.python_version
    return facts


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or _ABSENT
    return _ABSENT if value is None else str(value)


@attrs.frozen
class Profiles:
    """Locations of profiles relative to a page.

    Profiles usually move with the results, as a folder next to the results file. That folder is
    tried first, and then the place where the profiles were written.

    Attributes:
      folders: folder of the results file of each run.
      page: path of the future page; None for a page without links.
    """

    folders: Mapping[str, Path]
    page: Path | None

    def of(self, result: Result) -> Json | None:
        """Returns the folder, its files with links, and an error; None without a profile.

        Links are relative to the page. A link is None if the file does not exist.
        """
        taken = result.profile
        timeline = result.timeline if isinstance(result.timeline, str) else ""
        if taken is UNSET and not timeline:
            return None
        wanted: list[tuple[str, str]] = []
        if taken:
            wanted = [(name, f"{taken.directory}/{name}") for name in taken.files]
        if timeline:
            wanted.append(("race timeline", timeline))
        return {
            "folder": taken.directory if taken else "",
            "files": [[name, self._link(path, result.run_id)] for name, path in wanted],
            "error": taken.error if taken else None,
        }

    def _link(self, written: str, run_id: str) -> str | None:
        if self.page is None:
            return None
        parts = PurePath(written).parts
        starts = [place for place, part in enumerate(parts) if part.endswith(SUFFIX)]
        # A foreign file may only refer to folders of profiles.
        if not starts or ".." in parts:
            return None
        folder = self.folders.get(run_id)
        beside = [folder.joinpath(*parts[starts[-1] :])] if folder else []
        for path in [*beside, Path(written)]:
            # `Path.is_file` raises if a folder cannot be searched or a name is too long.
            if os.path.isfile(path):  # noqa: PTH113
                relative = os.path.relpath(path, self.page.absolute().parent)
                return urllib.parse.quote(Path(relative).as_posix())
        return None


_MOST_ROWS = 8
_MOST_LINES = 6


class Explained:
    """Compares the profile of each case with the fastest profiled one of its workload."""

    def __init__(self, cases: Sequence[ReportCase], folders: Mapping[str, Path]) -> None:
        self._errors: dict[str, str] = {}
        self._profiles: dict[str, OperatorProfile] = {}
        self._fastest: dict[Hashable, ReportCase] = {}
        with_profiles = {
            folder for folder in set(folders.values()) if any(folder.glob("*.profiles"))
        }
        groups: defaultdict[Hashable, list[ReportCase]] = defaultdict(list)
        for case in cases:
            folder = folders.get(case.result.run_id)
            if folder in with_profiles and folder and case.metrics.median_ms:
                try:
                    profile = published.load(folder, case.result)
                except (OSError, ValueError) as error:
                    self._errors[case.id] = f"the profile cannot be read: {error}"
                    continue
                if profile is not None:
                    self._profiles[case.id] = profile
                    groups[case.workload, case.contest].append(case)
        for key, group in groups.items():
            if ranked := [case for case in group if case.result.ranked and not case.is_recipe]:
                self._fastest[key] = min(ranked, key=_ms)

    def of(self, case: ReportCase, ceilings: Ceilings | None) -> Json | None:
        """Returns the data for the page; None without a profile, or if none is faster."""
        if case.id in self._errors:
            return {"error": self._errors[case.id]}
        fastest = self._fastest.get((case.workload, case.contest))
        if case.id not in self._profiles or fastest is None or _ms(fastest) >= _ms(case):
            return None
        return _as_json(
            explain(
                (case.result, self._profiles[case.id]),
                (fastest.result, self._profiles[fastest.id]),
                ceilings,
            )
        )


def _ms(case: ReportCase) -> float:
    return case.metrics.median_ms or math.inf


def _as_json(explanation: Explanation) -> Json:
    sides = (explanation.slow, explanation.fast)
    return {
        "competitors": [side.competitor for side in sides],
        "covers": [short(side.cover) for side in sides],
        "lost": short(explanation.lost_ms),
        "rows": [
            [row.kind, short(row.lost_ms), *_part(row.slow), *_part(row.fast)]
            for row in explanation.rows[:_MOST_ROWS]
        ],
        "lines": [[side.competitor, *line] for side in sides for line in _lines(side)],
    }


def _part(part: Part | None) -> list[object]:
    """Returns time, share of the roof, and the longest operator."""
    if part is None:
        return [None, None, None]
    longest = part.operators[0] if part.operators else None
    name = longest and (f"{longest.name} ({longest.does})" if longest.does else longest.name)
    return [short(part.ms), short(part.of_roof), name and name[:120]]


def _lines(side: Side) -> list[tuple[str, str]]:
    profile = side.profile
    lines = [
        *([("disturbed", profile.disturbed)] if profile.disturbed else []),
        *(("graph break", line) for line in profile.breaks),
        *(("fallback", line) for line in profile.fallbacks),
        *(("fused", line) for line in profile.fusions),
        *(("note", line) for line in profile.remarks),
    ]
    return [(what, line[:300]) for what, line in lines[:_MOST_LINES]]


_ARROW = "\N{RIGHTWARDS ARROW}"


@attrs.frozen(kw_only=True)
class ScriptRow:
    """A script in the table, as text; unknown values are `-`.

    Attributes:
      case: its id, for links.
      rate: rate of all concurrent processes, with the 95 % interval over replicates.
      processes: number that reported a rate, and number of failures, if any.
      share: share of its rate alone that each process keeps while all run concurrently.
      loss: first and last loss of the first process.
      memory: peak memory of the devices, else of the host.
    """

    case: str
    name: str
    status: Status
    rate: str
    processes: str
    share: str
    loss: str
    memory: str
    device_use: str


def script_rows(cases: Iterable[ReportCase]) -> list[ScriptRow]:
    """Returns a row for each case that is a script."""
    return [_row(case, throughput) for case in cases if (throughput := case.metrics.throughput)]


def _row(case: ReportCase, throughput: Throughput) -> ScriptRow:
    processes = throughput.processes
    failed = sum(process.status is not Status.OK for process in processes)
    losses = next((process.losses for process in processes if process.losses), ())
    uses = [process.device_use for process in processes if process.device_use is not None]
    device_mb, host_mb = case.metrics.device_memory_peak_mb, case.metrics.host_memory_peak_mb
    memory_mb = device_mb or host_mb
    return ScriptRow(
        case=case.id,
        name=script_name(case.result),
        status=case.status,
        rate=f"{rate_text(throughput)} {throughput.units}" if throughput.rate else "-",
        processes=f"{len(processes)}, {failed} failed" if failed else str(len(processes)),
        share=share_text(throughput),
        loss=f" {_ARROW} ".join(digits(loss) for loss in dict.fromkeys(losses)) or "-",
        memory=f"{digits(memory_mb)} MB {'device' if device_mb else 'host'}" if memory_mb else "-",
        device_use=f"{sum(uses) / len(uses):.0%}" if uses else "-",
    )
