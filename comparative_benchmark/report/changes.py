"""What changed since the baseline results, as `cbs compare` judges it."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from comparative_benchmark.report.inputs import Result
from comparative_benchmark.results.compare import (
    Comparison,
    Fate,
    Summary,
    compare_documents,
    summarize_comparisons,
)
from comparative_benchmark.results.compare_remarks import Remarks, remarks
from comparative_benchmark.stats.analysis import NOISE_THRESHOLD, Verdict


@attrs.frozen(kw_only=True)
class Change:
    """One case that is no longer what it was.

    Attributes:
      result_id: of the case in this report; None where it holds none.
    """

    comparison: Comparison
    result_id: str | None

    @property
    def percent(self) -> float | None:
        """By how much the latency changed; None without a ratio."""
        ratio = self.comparison.ratio
        return None if ratio is None else 100 * (ratio.estimate - 1)


@attrs.frozen(kw_only=True)
class Changes:
    """All of them.

    Attributes:
      name: of the baseline file.
      slower, faster: by size, the largest first.
      wrong, missing, incomparable: what has no ratio.
      by_id: the comparison of each result that has one.
    """

    name: str
    summary: Summary
    remarks: Remarks
    slower: Sequence[Change]
    faster: Sequence[Change]
    wrong: Sequence[Change]
    missing: Sequence[Change]
    incomparable: Sequence[Change]
    by_id: Mapping[str, Comparison]


def find_changes(
    name: str,
    old: Mapping[str, Any],
    new: Mapping[str, Any],
    results: Sequence[Result],
    *,
    threshold: float = NOISE_THRESHOLD,
) -> Changes:
    """Returns how the results differ from older ones.

    Args:
      name: of the older ones, for people.
      old: their document.
      new: the document of the results.
      results: those of the document.
      threshold: differences below it are noise.
    """
    comparisons = compare_documents(old, new, threshold=threshold)
    # The latest counts where two machines have the same case, as in the comparison.
    ids = {
        (case.workload, case.competitor, case.framework, case.device, case.quantity): result.id
        for result in results
        for case in (result.case,)
    }
    found = [
        Change(
            comparison=item,
            result_id=ids.get(
                (item.workload, item.competitor, item.framework, item.device, item.quantity)
            ),
        )
        for item in comparisons
    ]
    return Changes(
        name=name,
        summary=summarize_comparisons(comparisons),
        remarks=remarks(old, new, comparisons),
        slower=_with_verdict(found, Verdict.SLOWER),
        faster=_with_verdict(found, Verdict.FASTER),
        wrong=_with_fate(found, Fate.WRONG),
        missing=_with_fate(found, Fate.MISSING),
        incomparable=_with_fate(found, Fate.INCOMPARABLE),
        by_id={change.result_id: change.comparison for change in found if change.result_id},
    )


def _with_verdict(changes: Sequence[Change], verdict: Verdict) -> list[Change]:
    chosen = [change for change in changes if change.comparison.verdict is verdict]
    return sorted(chosen, key=lambda change: -abs(_log(change.comparison)))


def _log(comparison: Comparison) -> float:
    return math.log(comparison.ratio.estimate) if comparison.ratio else 0.0


def _with_fate(changes: Sequence[Change], fate: Fate) -> list[Change]:
    return [change for change in changes if change.comparison.fate is fate]
