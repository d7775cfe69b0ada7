"""Plots of results; needs matplotlib."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from comparative_benchmark.analysis.stats.analysis import SampleError, latency_interval
from comparative_benchmark.results.case import Case
from comparative_benchmark.results.record import Status

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def latencies(cases: Sequence[Case], axes: "Axes | None" = None) -> "Axes":
    """Draws one bar per case that has a latency, with its interval over processes."""
    if axes is None:
        from matplotlib import pyplot as plt

        _, axes = plt.subplots(layout="constrained")
    shown = [case for case in cases if case.status is Status.OK and case.metrics.median_ms]
    for position, case in enumerate(shown):
        median_ms = case.metrics.median_ms or 0.0
        processes = [process.latencies_ms for process in case.metrics.processes or ()]
        error = None
        if len(processes) > 1:
            try:
                interval = latency_interval(processes)
            except SampleError:
                pass
            else:
                median_ms = interval.estimate
                error = [[median_ms - interval.low], [interval.high - median_ms]]
        axes.barh(position, median_ms, xerr=error)
    names = [f"{case.label}\n{case.competitor} ({case.framework})" for case in shown]
    axes.set_yticks(range(len(shown)), names)
    axes.invert_yaxis()
    axes.set_xlabel("latency, ms (95 % interval over processes)")
    return axes
