"""How a case went over time: a protocol for who knows it, and the points of results at hand."""

import datetime
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from comparative_benchmark.report.inputs import Inputs, Result
from comparative_benchmark.report.ratios import Judged, judge, samples_of
from comparative_benchmark.results.compare_samples import LATENCY
from comparative_benchmark.stats.analysis import SampleError

# An interval takes milliseconds: with more results than this their points have none.
_MOST_INTERVALS = 2_000


class TrendPoint(NamedTuple):
    """One measurement of a case; the latency in ms with its 95 % interval, where it is known."""

    time: datetime.datetime
    value: float
    low: float | None
    high: float | None
    versions: Mapping[str, str]


class Trends(Protocol):
    """A source of trends."""

    def trend(
        self, case: str, competitor: str, *, device: str, machine: str
    ) -> Sequence[TrendPoint]:
        """Returns the measurements of a case, oldest first; none where it knows none.

        Args:
          case: name of the benchmark case.
          competitor: `backend:compiler`, with `@name` of its environment.
          device: that it ran on.
          machine: CPU model of that machine.
        """
        ...


class JoinedTrends:
    """Several sources as one; none is one that knows no trend."""

    def __init__(self, sources: Sequence[Trends]) -> None:
        self._sources = sources

    def trend(
        self, case: str, competitor: str, *, device: str, machine: str
    ) -> Sequence[TrendPoint]:
        """Returns the measurements that any of them knows, oldest first."""
        found = [
            point
            for source in self._sources
            for point in source.trend(case, competitor, device=device, machine=machine)
        ]
        return sorted(found, key=lambda point: point.time)


def trends_of(
    inputs: Inputs, judged: Sequence[Judged], source: Trends
) -> dict[str, list[TrendPoint]]:
    """Returns the trend of each result by its id, oldest first, itself at the end.

    What the files at hand hold of a case joins what the source knows of it; the same time counts
    once. Results with a trend of a single point are left out.
    """
    own: defaultdict[str, list[TrendPoint]] = defaultdict(list)
    earlier = [result for results in inputs.earlier.values() for result in results]
    for result, point in (*points_of(earlier), *_points(judged)):
        own[result.id].append(point)
    found = {}
    for result in inputs.results:
        case = result.case
        # A history knows latencies, and nothing of compile-only results.
        known = (
            ()
            if case.quantity != LATENCY
            else source.trend(
                case.benchmark, case.competitor, device=case.device, machine=case.machine
            )
        )
        by_time = {point.time: point for point in (*known, *own[result.id])}
        if len(by_time) > 1:
            found[result.id] = [by_time[time] for time in sorted(by_time)]
    return found


def points_of(results: Sequence[Result]) -> list[tuple[Result, TrendPoint]]:
    """Returns each result that has samples and a time, with its point."""
    if len(results) <= _MOST_INTERVALS:
        # Against nobody: only the intervals are wanted.
        return _points(judge(results, ""))
    return [
        (result, TrendPoint(result.case.started, centre, None, None, _versions(result)))
        for result in results
        if result.case.started is not None and (centre := _centre(result)) is not None
    ]


def _points(judged: Iterable[Judged]) -> list[tuple[Result, TrendPoint]]:
    return [
        (
            item.result,
            TrendPoint(
                item.result.case.started,
                item.interval.estimate,
                item.interval.low,
                item.interval.high,
                _versions(item.result),
            ),
        )
        for item in judged
        if item.interval is not None and item.result.case.started is not None
    ]


def _centre(result: Result) -> float | None:
    """Returns the estimate that `latency_interval` would give, without an interval."""
    if result.case.status != "ok":
        return None
    try:
        processes = samples_of(result.case)
    except SampleError:
        return None
    centre = statistics.fmean(map(statistics.median, processes)) if all(processes) else 0.0
    return centre if 0 < centre < math.inf else None


def _versions(result: Result) -> dict[str, str]:
    """Returns the package versions and the interpreter's, as the history has them."""
    found = {str(name): str(version) for name, version in result.case.versions.items()}
    python = result.case.python
    return {"python": str(python), **found} if python and found else found
