"""Means over cases and families of comparisons: what ratios to one baseline have in common."""

import math

import numpy as np
import pytest
from scipy import stats

from comparative_benchmark.analysis.stats.analysis import (
    FAMILY_ERROR,
    LogRatio,
    Verdict,
    decisive,
    mean_ratio,
    paired_ratio,
    unpaired_ratio,
    verdict,
)


def race(candidates, baseline):
    """The ratios of one race: of each competitor's process medians to the baseline's."""
    return [
        paired_ratio([[(a, b)] * 2 for a, b in zip(candidate, baseline, strict=True)])
        for candidate in candidates
    ]


def log_half_width(interval):
    return math.log(interval.high / interval.low) / 2


def ratio_of_p(p_value, sign=1.0, processes=10):
    """A ratio with that p-value: 10 replicates with a standard error of 1."""
    t = stats.t.isf(0.6 * p_value / 2, processes - 1)
    terms = np.array([1.0, -1.0] * (processes // 2))
    terms /= math.sqrt((terms**2).sum())
    found = LogRatio(estimate=sign * t, shared=tuple(terms.tolist()), processes=processes)
    assert found.p_value == pytest.approx(p_value)
    return found


def test_the_mean_over_competitors_of_one_baseline_is_that_of_their_mean():
    random = np.random.default_rng(0)
    baseline = np.exp(0.05 * random.standard_normal(8))
    candidates = np.exp(0.01 * random.standard_normal((4, 8)))
    ratios = race(candidates, baseline)
    mean = mean_ratio([ratios])
    # One series: the geometric mean of the candidates, replicate by replicate.
    (direct,) = race([np.exp(np.log(candidates).mean(axis=0))], baseline)
    expected = direct.interval()
    assert (mean.low, mean.estimate, mean.high) == pytest.approx(
        (expected.low, expected.estimate, expected.high)
    )
    # As if independent it would be far too narrow: the baseline's noise is in all of them.
    apart = mean_ratio([[ratio] for ratio in ratios])
    assert log_half_width(apart) < 0.7 * log_half_width(mean)


def test_unpaired_ratios_share_the_baseline_too():
    random = np.random.default_rng(1)
    noise = np.exp(0.03 * random.standard_normal((3, 6)))
    baseline, *candidates = ([[value, value] for value in side] for side in noise)
    mean = mean_ratio([[unpaired_ratio(side, baseline) for side in candidates]])
    logs = np.log(noise)
    variances = logs.var(axis=1, ddof=1) / 6
    error = math.sqrt(variances[0] + (variances[1] + variances[2]) / 4)
    parts = np.array([variances[0], variances[1] / 4, variances[2] / 4])
    degrees = parts.sum() ** 2 / (parts**2 / 5).sum()
    expected = stats.t.isf(0.006, degrees) * error
    assert log_half_width(mean) == pytest.approx(expected)
    assert math.log(mean.estimate) == pytest.approx(logs[1:].mean() - logs[0].mean())


def test_competitors_that_left_the_race_early_still_share_what_they_had():
    random = np.random.default_rng(2)
    baseline = np.exp(0.05 * random.standard_normal(10))
    candidates = np.exp(0.001 * random.standard_normal((2, 10)))
    (early,), (late,) = race(candidates[:1, :4], baseline[:4]), race(candidates[1:], baseline)
    mean = mean_ratio([[early, late]])
    assert mean.processes == 4
    apart, most = mean_ratio([[early], [late]]), log_half_width(early.interval())
    assert log_half_width(apart) < log_half_width(mean) < 1.05 * most


def test_a_mean_with_a_single_process_reports_it():
    lone = unpaired_ratio([[1.0, 1.1, 1.05, 1.02]], [[1.0, 1.01], [1.02, 1.0]])
    many = unpaired_ratio([[1.0, 1.1]] * 3, [[1.0, 1.01], [1.02, 1.0], [1.1, 1.0]])
    mean = mean_ratio([[lone], [many]])
    assert mean.scope == "98 %, within one process"
    assert lone.p_value is None
    outcome, reason = verdict(lone.interval())
    assert outcome is Verdict.UNCLEAR
    assert reason == "1 process (the interval is within one process); a verdict needs at least 3"


def test_up_to_four_comparisons_change_nothing():
    ratios = [ratio_of_p(0.0199), ratio_of_p(0.9), ratio_of_p(0.5, -1), ratio_of_p(0.7)]
    assert decisive(ratios, Verdict.SLOWER) == [True, False, False, False]


def test_holm_asks_more_of_many_comparisons():
    chance = [ratio_of_p(0.2 + 0.015 * number, (-1) ** number) for number in range(48)]
    lucky, real = ratio_of_p(0.015), ratio_of_p(1e-4)
    assert verdict(lucky.interval())[0] is verdict(real.interval())[0] is Verdict.SLOWER
    assert decisive([lucky, real, *chance], Verdict.SLOWER)[:2] == [False, True]
    # A step down: once the smallest is out, the next has one test fewer to compete with.
    limit = 2 * FAMILY_ERROR / 49
    pair = [ratio_of_p(1e-4), ratio_of_p(0.999 * limit), *chance]
    assert decisive(pair, Verdict.SLOWER)[:2] == [True, True]
    pair[1] = ratio_of_p(1.001 * limit)
    assert decisive(pair, Verdict.SLOWER)[:2] == [True, False]


def test_a_family_looks_in_one_direction():
    faster = ratio_of_p(1e-6, -1)
    assert decisive([faster], Verdict.SLOWER) == [False]
    assert decisive([faster], Verdict.FASTER) == [True]


def test_what_supports_no_verdict_is_not_in_the_family():
    two = unpaired_ratio([[2.0, 2.0], [2.0, 2.01]], [[1.0, 1.0], [1.0, 1.01]])
    assert decisive([two], Verdict.SLOWER) == [False]
    ratios = [ratio_of_p(2 * FAMILY_ERROR * 0.99), *[two] * 20]
    assert decisive(ratios, Verdict.SLOWER)[0] is True
    assert decisive([], Verdict.SLOWER) == []


@pytest.mark.parametrize(("processes", "is_decisive"), [(3, False), (5, False), (6, True)])
def test_exit_code_2_needs_six_processes(processes, is_decisive):
    times = [[2.0 + 0.001 * number] * 2 for number in range(processes)]
    halves = [[value / 2 for value in samples] for samples in times[::-1]]
    ratio = unpaired_ratio(times, halves)
    assert verdict(ratio.interval())[0] is Verdict.SLOWER
    assert decisive([ratio], Verdict.SLOWER) == [is_decisive]
