"""Simple summaries of samples."""

import math
import statistics
from collections.abc import Iterable, Sequence

from comparative_benchmark.analysis.stats.steadiness import tukey_outliers
from comparative_benchmark.results.record import Outliers

# A percentile is given only if at least this many samples lie beyond it.
_SAMPLES_BEYOND = 5


def summarize(samples: Sequence[float], suffix: str) -> dict[str, float | None]:
    """Returns min, max, mean, median, stddev and median absolute deviation of samples.

    Keys are `<statistic>_<suffix>`. The standard deviation is that of a sample (n - 1), None for
    one sample. p90, p95 and p99 are given where n supports them.
    """
    if not samples:
        return {}
    # Sorted once: a race of a small program has hundreds of thousands.
    ordered = sorted(samples)
    median, mean = statistics.median(ordered), statistics.fmean(ordered)
    summary: dict[str, float | None] = {
        f"min_{suffix}": ordered[0],
        f"max_{suffix}": ordered[-1],
        f"mean_{suffix}": mean,
        f"median_{suffix}": median,
        f"stddev_{suffix}": _stddev(ordered, mean) if len(ordered) > 1 else None,
        f"mad_{suffix}": statistics.median(abs(value - median) for value in ordered),
    }
    supported = [p for p in (90, 95, 99) if len(ordered) * (100 - p) >= _SAMPLES_BEYOND * 100]
    if supported:
        cuts = statistics.quantiles(ordered, n=100, method="inclusive")
        summary |= {f"p{percent}_{suffix}": cuts[percent - 1] for percent in supported}
    return summary


def _stddev(samples: Sequence[float], mean: float) -> float:
    # Two passes and an exact sum: `statistics.stdev` goes through fractions, three times as long.
    return math.sqrt(math.fsum((value - mean) ** 2 for value in samples) / (len(samples) - 1))


def outlier_counts(processes: Iterable[Sequence[float]]) -> Outliers:
    """Returns how many samples are mild and severe outliers of their own process, by Tukey.

    Each process has fences of its own: the processes of a trial may differ by more than the
    quartile range of one, and pooled samples would then show outliers where there are none, or
    hide some. Counted, never dropped; see `tukey_outliers`.
    """
    counts = [tukey_outliers(samples) for samples in processes]
    return Outliers(
        mild=sum(mild for mild, _ in counts), severe=sum(severe for _, severe in counts)
    )
