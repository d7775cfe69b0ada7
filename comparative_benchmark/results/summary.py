"""Summary statistics of samples."""

import math
import statistics
from collections.abc import Iterable, Sequence

from comparative_benchmark.analysis.stats.steadiness import tukey_outliers
from comparative_benchmark.results.record import Outliers

# A percentile is given only if at least this many samples lie beyond it.
_SAMPLES_BEYOND = 5


def summarize(samples: Sequence[float], suffix: str) -> dict[str, float | None]:
    """Returns min, max, mean, median, standard deviation and median absolute deviation.

    Keys are `<statistic>_<suffix>`. The standard deviation uses n - 1 and is None for one sample.
    p90, p95 and p99 are included if n is large enough.
    """
    if not samples:
        return {}
    # Sort once: a race of a small program has hundreds of thousands of samples.
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
    # Two passes with an exact sum; `statistics.stdev` uses fractions and takes three times as long.
    return math.sqrt(math.fsum((value - mean) ** 2 for value in samples) / (len(samples) - 1))


def outlier_counts(processes: Iterable[Sequence[float]]) -> Outliers:
    """Returns how many samples are mild and severe outliers of their own process, by Tukey's rule.

    Each process has separate fences: processes of a trial may differ by more than the interquartile
    range of one, so pooled samples could show false outliers or hide real ones. Outliers are
    counted, never dropped; see `tukey_outliers`.
    """
    counts = [tukey_outliers(samples) for samples in processes]
    return Outliers(
        mild=sum(mild for mild, _ in counts), severe=sum(severe for _, severe in counts)
    )
