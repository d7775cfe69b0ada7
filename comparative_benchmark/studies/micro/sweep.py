"""The outcome of a sweep over shapes, by competitor."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from comparative_benchmark.analysis.stats.analysis import Verdict
from comparative_benchmark.results.case import Case
from comparative_benchmark.results.comparing.compare import compare_to_baseline
from comparative_benchmark.results.comparing.comparison import Comparison
from comparative_benchmark.results.record import Result


def by_competitor(results: Sequence[Result], baseline: str | None) -> Iterator[str]:
    """Yields a sentence per competitor: numbers of shapes won and lost, and the extremes.

    Only shapes with a verdict count as won or lost; shapes that one of the two cannot run are
    ignored.

    Args:
      results: results of a sweep.
      baseline: the competitor that ratios are relative to; None for none.
    """
    if baseline is None:
        return
    groups: defaultdict[tuple[str, str], list[Comparison]] = defaultdict(list)
    for found in compare_to_baseline([Case(result=result) for result in results], baseline):
        if found.ratio is not None:
            groups[found.competitor, found.framework].append(found)
    for (competitor, framework), comparisons in groups.items():
        won, lost = (
            [found for found in comparisons if found.verdict is verdict]
            for verdict in (Verdict.FASTER, Verdict.SLOWER)
        )
        text = (
            f"{competitor} ({framework}) against {baseline}: faster on {len(won)}, slower on "
            f"{len(lost)} of {len(comparisons)} shapes"
        )
        extremes = [
            f"worst {_told(max(lost, key=_estimate))}" if lost else "",
            f"best {_told(min(won, key=_estimate))}" if won else "",
        ]
        yield "; ".join(filter(None, (text, *extremes)))


def _estimate(found: Comparison) -> float:
    assert found.ratio is not None
    return found.ratio.estimate


def _told(found: Comparison) -> str:
    ratio = found.ratio
    assert ratio is not None
    return f"{ratio.estimate:.2f} x ({ratio.low:.2f}-{ratio.high:.2f}) at {found.label}"
