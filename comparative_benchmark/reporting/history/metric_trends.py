"""A window of nights as arrays, one per metric, and the rises in them."""

import math
from collections.abc import Iterator, Mapping, Sequence

import attrs
import numpy as np

from comparative_benchmark.analysis.stats.steps import (
    FEWEST_NIGHTS,
    Array,
    Mask,
    Step,
    boundaries,
    correlation,
    fit,
    missed,
    noise_scale,
    penalties,
    rises,
    tail,
)
from comparative_benchmark.reporting.history.queries import Night, Window
from comparative_benchmark.reporting.history.rows import METRICS, OK

# Errors below this count as this, because the logarithm needs a positive number.
_LEAST_ERROR = 1e-9
# Minimum noise: timer, clock and memory layout cause this much even if a short window shows less.
_LEAST_SCALE = 0.001
_Z = 1.959964
_COLUMNS = (*METRICS, "latency_low_ms", "latency_high_ms")
_FROM_NIGHT = [Night._fields.index(name) for name in _COLUMNS]


@attrs.frozen(kw_only=True)
class MetricTrends:
    """One metric of all series with enough nights.

    Attributes:
      series: the series of each row; `nights` has all of its nights.
      logs: [rows, nights], logarithms; `known` marks existing values.
      own: [rows, nights], variance of each logarithm from its interval; 0 without one.
    """

    metric: str
    series: Sequence[int]
    nights: Sequence[Sequence[Night]]
    logs: Array
    own: Array
    known: Mask

    def rises(self, thresholds: Mapping[str, float]) -> Iterator["Rise"]:
        """Yields the rises that noise is unlikely to cause in a single series."""
        together = correlation(self.logs, self.known)
        # Differences of correlated nights are smaller than the nights' own scatter.
        scale = noise_scale(self.logs, self.known) / math.sqrt(1 - together)
        penalty = penalties(scale, self.known.sum(axis=1), _LEAST_SCALE)
        starts = boundaries(self.logs, self.known, penalty)
        positions = [np.flatnonzero(known) for known in self.known]
        fits = [
            fit(
                self.logs[row, positions[row]],
                self.own[row, positions[row]],
                [int(start) for start in np.searchsorted(positions[row], starts[row])],
                least=_LEAST_SCALE,
                correlation=together,
            )
            for row in range(len(self.series))
        ]
        residuals = [found.residuals for found in fits]
        heaviness, factor = tail(residuals), missed(scale, residuals)
        for row, found in enumerate(found.scaled(factor) for found in fits):
            for step in rises(found, threshold=thresholds[self.metric], tail=heaviness):
                good, bad = (self.nights[row][positions[row][step.night - back]] for back in (1, 0))
                yield Rise(
                    metric=self.metric,
                    series=self.series[row],
                    step=step,
                    last_good=good,
                    first_bad=bad,
                    nights=found.nights - step.night,
                )


@attrs.frozen(kw_only=True)
class Rise:
    """A step of a series, with its nights; `nights` is the number since the step."""

    metric: str
    series: int
    step: Step
    last_good: Night
    first_bad: Night
    nights: int


def metric_trends(window: Window) -> list[MetricTrends]:
    """Returns the trends of each of `METRICS`, over the nights that were `ok`."""
    values = _values(window)
    return [_trends(metric, values, window) for metric in METRICS]


def _values(window: Window) -> Array:
    """Returns [series, nights, columns], NaN where there is no value."""
    longest = max(map(len, window.nights.values()), default=0)
    values = np.full((len(window.nights), longest, len(_COLUMNS)), np.nan)
    nothing = [None] * len(_COLUMNS)
    for row, nights in enumerate(window.nights.values()):
        # None becomes NaN.
        values[row, : len(nights)] = np.array(
            [
                [night[column] for column in _FROM_NIGHT] if night.status == OK else nothing
                for night in nights
            ],
            dtype=np.float64,
        )
    return values


def _trends(metric: str, values: Array, window: Window) -> MetricTrends:
    chosen = values[:, :, _COLUMNS.index(metric)]
    if metric == "error":
        chosen = np.maximum(chosen, _LEAST_ERROR)
    known = chosen > 0
    rows = np.flatnonzero(known.sum(axis=1) >= FEWEST_NIGHTS)
    known = known[rows]
    own = np.zeros(known.shape)
    if metric == "latency_ms":
        low, high = (values[rows, :, column] for column in (-2, -1))
        told = known & (low > 0) & (high > 0)
        own = (np.log(np.where(told, high, 1.0) / np.where(told, low, 1.0)) / 2 / _Z) ** 2
    series = list(window.nights)
    return MetricTrends(
        metric=metric,
        series=[series[row] for row in rows],
        nights=[window.nights[series[row]] for row in rows],
        logs=np.log(np.where(known, chosen[rows], 1.0)),
        own=own,
        known=known,
    )
