"""Noise estimated over all trends; noise of other kinds raises few alarms, too."""

import math

import numpy as np
import pytest

from comparative_benchmark.analysis.stats.steps import (
    correlation,
    discoveries,
    inflation,
    missed,
    tail,
)
from comparative_benchmark.reporting.history.queries import Night
from comparative_benchmark.reporting.history.regressions import FALSE_RATE, THRESHOLDS, MetricTrends

NIGHTS = 30


def drifting(random, shape, share):
    values = random.standard_normal(shape)
    for number in range(1, shape[1]):
        fresh = math.sqrt(1 - share**2) * values[:, number]
        values[:, number] = share * values[:, number - 1] + fresh
    return values


def everywhere(values):
    return np.ones(values.shape, dtype=bool)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.5, 0.8])
def test_correlation_is_that_of_the_series_whatever_its_steps(share):
    values = drifting(np.random.default_rng(0), (200, NIGHTS), share)
    values[::4, 15:] += 10.0
    assert correlation(values, everywhere(values)) == pytest.approx(share, abs=0.1)


def test_correlation_without_information_is_zero():
    values = np.zeros((3, NIGHTS))
    assert correlation(values, everywhere(values)) == 0.0
    assert correlation(values, ~everywhere(values)) == 0.0
    assert correlation(np.zeros((0, 0)), np.zeros((0, 0), dtype=bool)) == 0.0
    walk = np.cumsum(np.random.default_rng(0).standard_normal((50, NIGHTS)), axis=1)
    assert correlation(walk, everywhere(walk)) == pytest.approx(0.9, abs=0.1)


@pytest.mark.parametrize(("degrees", "low", "high"), [(3, 2.1, 4.5), (6, 4, 12), (None, 20, 1e4)])
def test_tails_are_about_those_of_the_nights(degrees, low, high):
    random = np.random.default_rng(1)
    shape = (300, NIGHTS)
    drawn = random.standard_normal(shape) if degrees is None else random.standard_t(degrees, shape)
    # For any noise of each trend.
    drawn *= np.linspace(0.1, 10, 300)[:, None]
    assert low <= tail(list(drawn)) <= high


def test_few_residuals_have_no_tail_of_their_own():
    normal = np.random.default_rng(1).standard_normal((2, NIGHTS))
    assert tail(list(normal)) == tail([]) == tail([np.zeros(0)]) == 10.0
    assert tail([np.zeros(500)]) == 10.0


def test_nights_that_are_equal_but_for_one_have_heavy_tails():
    nights = np.zeros(60)
    nights[7] = 1.0
    assert tail([nights] * 4) == pytest.approx(tail([nights] * 8), rel=0.01)
    assert tail([nights] * 4) < 5.0


@pytest.mark.parametrize("share", [0.0, 0.4, 0.9])
@pytest.mark.parametrize("nights", [1, 2, 7, 60])
def test_inflation_is_the_sum_of_all_covariances(nights, share):
    apart = np.abs(np.subtract.outer(range(nights), range(nights)))
    # The variance of a mean of n is the sum of the matrix over n^2; of independent ones, 1 / n.
    expected = float((share**apart).sum()) / nights
    assert inflation(nights, share) == pytest.approx(expected)


def test_residuals_that_are_too_small_are_seen_by_differences():
    residuals = list(np.random.default_rng(2).standard_normal((50, NIGHTS)))
    assert missed(np.full(50, 1.0), residuals) == pytest.approx(1.0, abs=0.1)
    assert missed(np.full(50, 2.0), residuals) == pytest.approx(2.0, abs=0.2)
    assert missed(np.full(50, 0.1), residuals) == 1.0
    assert missed(np.zeros(50), residuals) == 1.0
    assert missed(np.zeros(0), []) == 1.0


def reported(logs):
    """Returns (trend, first bad night) of the reported steps of a metric."""
    nights = [Night(n, n, "", "", 0, "", "ok", "", *([None] * 8)) for n in range(logs.shape[1])]
    trends = MetricTrends(
        metric="latency_ms",
        series=range(len(logs)),
        nights=[nights] * len(logs),
        logs=logs,
        own=np.zeros(logs.shape),
        known=everywhere(logs),
    )
    rises = list(trends.rises(THRESHOLDS))
    limit = discoveries([rise.step.p for rise in rises], len(logs), FALSE_RATE)
    return [(rise.series, rise.first_bad.id) for rise in rises if rise.step.p <= limit]


NOISES = {
    "normal": lambda random, shape: random.standard_normal(shape),
    "heavy tails": lambda random, shape: random.standard_t(3, shape) / math.sqrt(3),
    "drift": lambda random, shape: drifting(random, shape, 0.5),
    "two levels": lambda random, shape: (
        np.where(random.random(shape) < 0.5, -0.9, 0.9) + 0.43 * random.standard_normal(shape)
    ),
}


@pytest.mark.parametrize("noise", NOISES.values(), ids=NOISES)
def test_noise_of_any_kind_raises_few_alarms(noise):
    shape = (20, NIGHTS)
    logs = [0.02 * noise(np.random.default_rng(seed), shape) for seed in range(15)]
    assert sum(bool(reported(some)) for some in logs) <= 1


@pytest.mark.parametrize("noise", ["normal", "heavy tails"])
def test_a_step_is_found_in_noise_of_other_kinds(noise):
    found = 0
    for seed in range(10):
        logs = 0.01 * NOISES[noise](np.random.default_rng(seed), (20, NIGHTS))
        logs[3, 20:] += math.log(1.08)
        found += (3, 20) in reported(logs)
    assert found >= 8
