"""How a case went over time: who knows it, and the points of results at hand."""

import datetime
import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, NamedTuple, TypeAlias

from msgspec import Meta

from comparative_benchmark.report.inputs import Inputs, ReportCase
from comparative_benchmark.report.ratios import Judged, judge
from comparative_benchmark.results.case import LATENCY, Case
from comparative_benchmark.results.compare_samples import samples_of
from comparative_benchmark.results.machine_moves import run_to_run
from comparative_benchmark.results.record import Positive, Status
from comparative_benchmark.stats.analysis import SampleError

# An interval takes milliseconds: with more results than this their points have none.
_MOST_INTERVALS = 2_000

Moment: TypeAlias = Annotated[datetime.datetime, Meta(tz=True)]


class TrendPoint(NamedTuple):
    """One measurement of a case; the latency in ms with its 95 % interval, where it is known."""

    time: Moment
    value: Positive
    low: Positive | None = None
    high: Positive | None = None
    versions: dict[str, str] = {}


# Returns the measurements of a case that a source knows, in any order; results of other devices and
# machines are not its.
Trends: TypeAlias = Callable[[Case], Iterable[TrendPoint]]


def usual_change(trends: Trends) -> Callable[[Case], float]:
    """Returns a function that gives a case's relative change from run to run, see `run_to_run`."""

    def change(case: Case) -> float:
        points = sorted(trends(case), key=lambda point: point.time)
        return run_to_run([(point.value, point.versions) for point in points])

    return change


def trends_of(
    inputs: Inputs, judged: Sequence[Judged], source: Trends
) -> Mapping[str, Sequence[TrendPoint]]:
    """Returns the trend of each case by its id, oldest first, itself at the end.

    What the files at hand hold of a case joins what the source knows of it; the same time counts
    once. Cases with a trend of a single point are left out.
    """
    own: defaultdict[str, list[TrendPoint]] = defaultdict(list)
    earlier = [case for cases in inputs.earlier.values() for case in cases]
    for case, point in (*points_of(earlier), *_points(judged)):
        own[case.id].append(point)
    found = {}
    for case in inputs.cases:
        # A history knows latencies, and nothing of compile-only results.
        known = source(case) if case.quantity == LATENCY else ()
        by_time = {point.time: point for point in (*known, *own[case.id])}
        if len(by_time) > 1:
            found[case.id] = [by_time[time] for time in sorted(by_time)]
    return found


def points_of(cases: Sequence[ReportCase]) -> list[tuple[ReportCase, TrendPoint]]:
    """Returns each case that has samples and a time, with its point."""
    if len(cases) <= _MOST_INTERVALS:
        # Against nobody: only the intervals are wanted.
        return _points(judge(cases, ""))
    return [
        (case, TrendPoint(case.started, centre, versions=_versions(case)))
        for case in cases
        if case.started is not None and (centre := _centre(case)) is not None
    ]


def _points(judged: Iterable[Judged]) -> list[tuple[ReportCase, TrendPoint]]:
    return [
        (
            item.case,
            TrendPoint(started, found.estimate, found.low, found.high, _versions(item.case)),
        )
        for item in judged
        if (found := item.interval) is not None and (started := item.case.started) is not None
    ]


def _centre(case: Case) -> float | None:
    """Returns the estimate that `latency_interval` would give, without an interval."""
    if case.status is not Status.OK:
        return None
    try:
        centre = statistics.fmean(map(statistics.median, samples_of(case.metrics)))
    except SampleError:
        return None
    return centre if 0 < centre < math.inf else None


def _versions(case: Case) -> dict[str, str]:
    """Returns the package versions and the interpreter's, as the history has them."""
    found = case.result.versions
    return {"python": case.python, **found} if case.python and found else found
