"""Fits of pieces against brute force, and which of the steps are real."""

import math
import statistics
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from comparative_benchmark.analysis.stats.analysis import student_quantile, student_tail
from comparative_benchmark.analysis.stats.steps import (
    boundaries,
    discoveries,
    fit,
    noise_scale,
    penalties,
    rises,
)

SERIES = st.lists(st.integers(-20, 20).map(lambda n: n / 4), min_size=1, max_size=12)


def cost(values, starts, penalty):
    limits = [0, *starts, len(values)]
    total = penalty * len(starts)
    for start, stop in pairwise(limits):
        level = statistics.median(values[start:stop])
        total += sum(abs(value - level) for value in values[start:stop])
    return total


def least_cost(values, penalty):
    """The same minimum by going through all last pieces, which is the textbook's way."""
    best = [-penalty]
    for stop in range(1, len(values) + 1):
        best.append(
            min(best[start] + penalty + cost(values[start:stop], [], 0) for start in range(stop))
        )
    return best[-1]


def fitted(values, penalty, known=None):
    array = np.array([values], dtype=float)
    mask = np.ones(array.shape, dtype=bool) if known is None else np.array([known])
    (found,) = boundaries(array, mask, np.array([penalty]))
    return found


@given(values=SERIES, penalty=st.sampled_from([0.3, 1.1, 2.7, 9.1]))
@settings(max_examples=150, deadline=None)
def test_no_other_pieces_are_better(values, penalty):
    found = fitted(values, penalty)
    assert cost(values, found, penalty) == pytest.approx(least_cost(values, penalty), abs=1e-9)


@given(series=st.lists(SERIES, min_size=2, max_size=5), penalty=st.sampled_from([0.3, 1.1, 2.7]))
@settings(max_examples=60, deadline=None)
def test_series_that_are_fitted_together_are_fitted_as_if_alone(series, penalty):
    longest = max(map(len, series))
    values = np.full((len(series), longest), np.nan)
    known = np.zeros(values.shape, dtype=bool)
    for row, some in enumerate(series):
        values[row, : len(some)] = some
        known[row, : len(some)] = True
    together = boundaries(values, known, np.full(len(series), penalty))
    assert together == [fitted(some, penalty) for some in series]


def test_unknown_nights_cost_nothing_and_begin_nothing():
    values = [1.0, math.nan, 1.0, 5.0, math.nan, 5.0, 5.0]
    known = [not math.isnan(value) for value in values]
    assert fitted(values, 1.0, known) == [3]
    assert fitted([math.nan, 3.0], 1.0, [False, True]) == []
    assert fitted([math.nan, math.nan], 1.0, [False, False]) == []
    assert boundaries(np.zeros((0, 0)), np.zeros((0, 0), dtype=bool), np.zeros(0)) == []
    assert boundaries(np.zeros((2, 0)), np.zeros((2, 0), dtype=bool), np.ones(2)) == [[], []]


def test_more_series_than_are_fitted_at_once():
    values = np.zeros((70, 8))
    values[::2, 4:] = 1.0
    known = np.ones(values.shape, dtype=bool)
    found = boundaries(values, known, np.full(70, 0.5))
    assert found == [[4], []] * 35


def test_an_outlier_is_no_step_and_a_step_is_none_of_the_noise():
    random = np.random.default_rng(0)
    values = 0.01 * random.standard_normal((1, 400))
    values[0, 200:] += 1.0
    known = np.ones(values.shape, dtype=bool)
    assert noise_scale(values, known)[0] == pytest.approx(0.01, rel=0.15)
    values[0, 100] = 0.05
    penalty = penalties(noise_scale(values, known), known.sum(axis=1), 1e-3)
    assert boundaries(values, known, penalty) == [[200]]


def test_a_series_that_repeats_itself_has_no_noise():
    values = np.zeros((2, 6))
    known = np.ones(values.shape, dtype=bool)
    known[1, 1:] = False
    assert list(noise_scale(values, known)) == [0.0, 0.0]
    assert (penalties(np.zeros(2), known.sum(axis=1), 1e-3) > 0).all()


@pytest.mark.parametrize("degrees", [1, 2, 5, 28, 199, 200, 201, 5000])
@pytest.mark.parametrize("probability", [0.6, 0.975, 0.999])
def test_the_tail_is_the_inverse_of_the_quantile(degrees, probability):
    distance = student_quantile(probability, float(degrees))
    assert student_tail(distance, degrees) == pytest.approx(1 - probability, rel=1e-5)


@pytest.mark.parametrize(
    ("distance", "degrees", "expected"),
    # Closed forms: 1 degree is Cauchy's, 2 and 4 are algebraic.
    [
        (1e4, 1, math.atan(1e-4) / math.pi),
        (50.0, 2, 0.5 - 50 / (2 * math.sqrt(2502))),
        (0.0, 28, 0.5),
    ],
)
def test_the_tail_is_right_far_out(distance, degrees, expected):
    assert student_tail(distance, degrees) == pytest.approx(expected, rel=1e-6)


def pieces(values, starts, own=None, least=1e-3):
    array = np.log(np.array(values, dtype=float))
    variances = np.zeros(len(values)) if own is None else np.array(own)
    return fit(array, variances, starts, least=least)


def noisy(seed, levels, noise=0.01):
    random = np.random.default_rng(seed)
    return [level * math.exp(noise * random.standard_normal()) for level in levels]


def test_pieces_that_noise_explains_are_merged():
    found = pieces(noisy(0, [1.0] * 30), [7, 20, 29])
    assert [(piece.start, piece.stop) for piece in found.pieces] == [(0, 30)]
    assert found.degrees == 29
    assert math.sqrt(found.variance) == pytest.approx(0.01, rel=0.4)


def test_a_rise_has_its_night_its_size_and_an_interval_that_holds_it():
    levels = [1.0] * 20 + [1.08] * 10
    inside = 0
    for seed in range(200):
        (step,) = rises(pieces(noisy(seed, levels), [20]), threshold=0.03)
        assert step.night == 20
        assert step.before == pytest.approx(1.0, rel=0.02)
        assert step.p < 1e-6
        inside += step.low < 1.08 < step.high
    # 95 % of 200, give or take four standard deviations.
    assert 177 <= inside <= 200


def test_what_later_nights_undid_is_no_rise():
    peak = noisy(1, [1.0] * 10 + [1.5] * 10 + [1.0] * 10)
    assert rises(pieces(peak, [10, 20]), threshold=0.03) == []
    partly = noisy(1, [1.0] * 10 + [1.5] * 10 + [1.2] * 10)
    (step,) = rises(pieces(partly, [10, 20]), threshold=0.03)
    assert step.night == 10
    assert step.ratio == pytest.approx(1.2, rel=0.02)
    twice = noisy(1, [1.0] * 10 + [1.2] * 10 + [1.5] * 10)
    assert [step.night for step in rises(pieces(twice, [10, 20]), threshold=0.03)] == [10, 20]
    better = noisy(1, [1.5] * 10 + [1.0] * 20)
    assert rises(pieces(better, [10]), threshold=0.03) == []


def test_a_rise_below_the_threshold_does_not_count():
    values = noisy(2, [1.0] * 20 + [1.08] * 20)
    assert rises(pieces(values, [20]), threshold=0.1) == []


def test_a_night_that_was_measured_badly_says_so_by_its_own_interval():
    values = [*noisy(3, [1.0] * 29), 1.08]
    sure = pieces(values, [29])
    assert len(sure.pieces) == 2
    wide = [0.0] * 29 + [0.05**2]
    assert len(pieces(values, [29], own=wide).pieces) == 1
    narrow = [0.0] * 29 + [0.001**2]
    (step,) = rises(pieces(values, [29], own=narrow), threshold=0.03)
    assert step.p == pytest.approx(rises(sure, threshold=0.03)[0].p)


def test_too_few_nights_before_it_are_no_base():
    values = noisy(4, [1.0] * 2 + [2.0] * 20)
    assert rises(pieces(values, [2]), threshold=0.03) == []


def test_noise_is_taken_for_a_step_as_often_as_it_says():
    random = np.random.default_rng(5)
    values = 0.02 * random.standard_normal((3000, 30))
    known = np.ones(values.shape, dtype=bool)
    starts = boundaries(
        values, known, penalties(noise_scale(values, known), known.sum(axis=1), 1e-3)
    )
    found = 0
    for series, some in zip(values, starts, strict=True):
        fitted_pieces = fit(series, np.zeros(30), some, least=1e-3)
        found += any(step.p <= 0.01 for step in rises(fitted_pieces, threshold=0.0))
    # Two-sided p of 0.01: rises are half of it, and the correction is a conservative one.
    assert found <= 30


def test_discoveries_are_those_of_benjamini_and_hochberg():
    p = [0.001, 0.008, 0.039, 0.041, 0.6]
    assert discoveries(p, 5, 0.05) == 0.008
    assert discoveries([0.01, 0.02, 0.03, 0.04, 0.05], 5, 0.05) == 0.05
    assert discoveries(p, 1000, 0.05) == 0.0
    assert discoveries([0.0], 1000, 0.01) == 0.0
    assert discoveries([], 0, 0.01) == 0.0
