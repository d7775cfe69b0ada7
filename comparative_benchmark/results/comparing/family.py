"""All comparisons of one workload's competitors, judged as one family of tests.

Readers look for the best line of a table and compare it with all others, whatever the baseline is.
The best and the worst of nine equal programs differ by chance far more often than two given ones,
so verdicts must hold among all pairs. Tables, recommendations, reports and the API all use these
verdicts.
"""

import itertools
from collections.abc import Sequence

from comparative_benchmark.analysis.stats.analysis import (
    DECISIVE_PROCESSES,
    MIN_PROCESSES,
    NOISE_THRESHOLD,
    VERDICT_LEVEL,
    Verdict,
    holm,
)
from comparative_benchmark.results.case import Case
from comparative_benchmark.results.comparing.compare_pair import compared
from comparative_benchmark.results.comparing.comparison import Comparison
from comparative_benchmark.results.record import Result, Status


class Family:
    """The comparisons of the competitors of one workload.

    Uses Holm's procedure over all pairs: if all competitors are equal, the chance of any false
    `faster` or `slower` is 2 %, the same as for a single pair. Intervals are not adjusted.
    """

    def __init__(self, cases: Sequence[Case], *, threshold: float) -> None:
        """Creates the family of one workload's results; those without a ratio are excluded."""
        self._cases = list(cases)
        self._threshold = threshold
        self._pairs: dict[tuple[int, int], Comparison] = {}
        self._certain: dict[frozenset[int], bool] | None = None

    def comparison(self, old: Case, new: Case) -> Comparison:
        """Returns the comparison of a case with another one of the family."""
        item = self._pair(old, new)
        if not item.is_decided or self._is_certain(old, new):
            return item
        pairs = len(self._certain or ())
        return item.withhold(
            f"not significant among the {pairs} pairs of competitors of this workload"
        )

    def lacks_processes(self, old: Case, new: Case) -> bool:
        """Returns whether two competitors are undecided and have few processes."""
        item = self.comparison(old, new)
        fewest = min(len(case.metrics.processes or ()) for case in (old, new))
        is_open = item.verdict is Verdict.UNCLEAR and not item.disturbed
        return is_open and MIN_PROCESSES <= fewest < DECISIVE_PROCESSES

    def _is_certain(self, old: Case, new: Case) -> bool:
        if len(self._cases) == 2:
            return True
        if self._certain is None:
            self._certain = self._tested()
        return self._certain[_key(old, new)]

    def _tested(self) -> dict[frozenset[int], bool]:
        """Returns which of the testable pairs differ significantly."""
        p_values = {}
        for first, second in itertools.combinations(self._cases, 2):
            p_value = self._p_value(first, second)
            if p_value is not None:
                p_values[_key(first, second)] = p_value
        rejected = holm(list(p_values.values()), 1 - VERDICT_LEVEL)
        return dict(zip(p_values, rejected, strict=True))

    def _p_value(self, first: Case, second: Case) -> float | None:
        """Returns the p-value of a pair; None if neither side can be the baseline of the other."""
        pairs = [(first, second), (second, first)]
        # A recipe is compared with its stack, but not the other way round.
        pairs.sort(key=lambda pair: tuple(map(id, pair)) not in self._pairs)
        known = (self._pair(*pair).p_value for pair in pairs)
        return next((p_value for p_value in known if p_value is not None), None)

    def _pair(self, old: Case, new: Case) -> Comparison:
        key = (id(old), id(new))
        if key not in self._pairs:
            self._pairs[key] = compared(old, new, threshold=self._threshold)
        return self._pairs[key]


def lacks_processes(results: Sequence[Result]) -> bool:
    """Returns whether any two competitors of a workload are undecided and have few processes."""
    cases = [Case(result=result) for result in results if result.status is Status.OK]
    family = Family(cases, threshold=NOISE_THRESHOLD)
    return any(family.lacks_processes(*pair) for pair in itertools.combinations(cases, 2))


def _key(first: Case, second: Case) -> frozenset[int]:
    return frozenset((id(first), id(second)))
