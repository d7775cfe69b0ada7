"""Why a case is slower than the fastest of its workload, where profiles of both lie beside them."""

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path

from comparative_benchmark.backends.operator_profile import OperatorProfile
from comparative_benchmark.report.columns import Json, short
from comparative_benchmark.report.inputs import ReportCase
from comparative_benchmark.results import kept_profiles
from comparative_benchmark.results.explanations import Explanation, Part, Side, explain
from comparative_benchmark.roofline.ceilings import Ceilings

_MOST_ROWS = 8
_MOST_LINES = 6


class Explained:
    """Profiles of cases, each set against the fastest one of its workload that has a profile."""

    def __init__(self, cases: Sequence[ReportCase], folders: Mapping[str, Path]) -> None:
        self._errors: dict[str, str] = {}
        self._profiles: dict[str, OperatorProfile] = {}
        self._fastest: dict[Hashable, ReportCase] = {}
        with_profiles = {
            folder for folder in set(folders.values()) if any(folder.glob("*.profiles"))
        }
        found: defaultdict[Hashable, list[ReportCase]] = defaultdict(list)
        for case in cases:
            folder = folders.get(case.result.run_id)
            if folder in with_profiles and folder and case.metrics.median_ms:
                try:
                    profile = kept_profiles.load(folder, case.result)
                except (OSError, ValueError) as error:
                    self._errors[case.id] = f"the profile cannot be read: {error}"
                    continue
                if profile is not None:
                    self._profiles[case.id] = profile
                    found[case.workload, case.contest].append(case)
        for key, group in found.items():
            if ranked := [case for case in group if case.result.ranked]:
                self._fastest[key] = min(ranked, key=lambda case: case.metrics.median_ms or 0.0)

    def of(self, case: ReportCase, ceilings: Ceilings | None) -> Json | None:
        """Returns what the page shows of a case; None for the fastest, or without a profile."""
        if case.id in self._errors:
            return {"error": self._errors[case.id]}
        fastest = self._fastest.get((case.workload, case.contest))
        if case.id not in self._profiles or fastest is None or fastest is case:
            return None
        return _as_json(
            explain(
                (case.result, self._profiles[case.id]),
                (fastest.result, self._profiles[fastest.id]),
                ceilings,
            )
        )


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
    found = [
        *([("disturbed", profile.disturbed)] if profile.disturbed else []),
        *(("graph break", line) for line in profile.breaks),
        *(("fallback", line) for line in profile.fallbacks),
        *(("fused", line) for line in profile.fusions),
        *(("note", line) for line in profile.remarks),
    ]
    return [(what, line[:300]) for what, line in found[:_MOST_LINES]]
