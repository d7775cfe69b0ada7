"""Changes since the baseline results, by the rules of `cbs compare`."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs

from comparative_benchmark.analysis.stats.analysis import NOISE_THRESHOLD, Verdict
from comparative_benchmark.reporting.report.inputs import Inputs
from comparative_benchmark.reporting.report.trends import Trends, usual_change
from comparative_benchmark.results.comparing.compare import (
    Comparison,
    Fate,
    Summary,
    compare_documents,
    summarize_comparisons,
)
from comparative_benchmark.results.comparing.compare_remarks import Remarks, remarks
from comparative_benchmark.results.record import Run
from comparative_benchmark.results.results_file import read_document


@attrs.frozen(kw_only=True)
class Change:
    """A case that has changed.

    Attributes:
      result_id: id of the case in this report; None if the report lacks it.
    """

    comparison: Comparison
    result_id: str | None

    @property
    def percent(self) -> float | None:
        """Change of the latency in percent; None without a ratio."""
        ratio = self.comparison.ratio
        return None if ratio is None else 100 * (ratio.estimate - 1)


@attrs.frozen(kw_only=True)
class Changes:
    """All changes.

    Attributes:
      name: name of the baseline file.
      slower, faster: by size, the largest first.
      wrong, missing, incomparable: changes without a ratio.
      by_id: comparison by result id, if there is one.
      runs: runs of the baseline file.
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
    runs: Sequence[Run]


def find_changes(
    path: Path,
    inputs: Inputs,
    *,
    threshold: float = NOISE_THRESHOLD,
    trends: Trends = lambda _: (),
) -> Changes:
    """Returns how results differ from those of an older file.

    Args:
      path: path of the older file.
      inputs: the results.
      threshold: smaller differences are noise.
      trends: earlier measurements of the cases: differences within their variation are noise, too.

    Raises:
      ResultsFileError: the older file cannot be read.
    """
    old, new = read_document(path), inputs.document
    comparisons = compare_documents(
        old, new, threshold=threshold, usual_change=usual_change(trends)
    )
    # If two machines have the same case, the latest counts, as in the comparison.
    ids = {case.key: case.id for case in inputs.cases}
    by_id: dict[str, Comparison] = {}
    groups: defaultdict[Verdict | Fate, list[Change]] = defaultdict(list)
    for item in comparisons:
        key = (item.workload, item.competitor, item.framework, item.device, item.quantity)
        change = Change(comparison=item, result_id=ids.get(key))
        groups[item.verdict if item.ratio else item.fate].append(change)
        if change.result_id:
            by_id[change.result_id] = item
    for verdict in (Verdict.SLOWER, Verdict.FASTER):
        groups[verdict].sort(key=lambda change: -abs(change.percent or 0.0))
    return Changes(
        name=path.name,
        summary=summarize_comparisons(comparisons),
        remarks=remarks(old, new, comparisons),
        slower=groups[Verdict.SLOWER],
        faster=groups[Verdict.FASTER],
        wrong=groups[Fate.WRONG],
        missing=groups[Fate.MISSING],
        incomparable=groups[Fate.INCOMPARABLE],
        by_id=by_id,
        runs=old.runs,
    )
