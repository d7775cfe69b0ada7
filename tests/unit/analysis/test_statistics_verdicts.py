"""Verdicts, tests of rank, outliers and steadiness."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from comparative_benchmark.analysis.stats.analysis import (
    Interval,
    SampleError,
    Verdict,
    paired_ratio,
    verdict,
)
from comparative_benchmark.analysis.stats.steadiness import (
    noise_converged,
    relative_precision,
    steadiness,
    tukey_outliers,
)

MIRRORED = {Verdict.FASTER: Verdict.SLOWER, Verdict.SLOWER: Verdict.FASTER}


def interval(estimate, low, high, level=0.98, processes=5):
    return Interval(estimate=estimate, low=low, high=high, level=level, processes=processes)


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ((0.9, 0.85, 0.95), Verdict.FASTER),
        ((1.1, 1.05, 1.15), Verdict.SLOWER),
        ((1.0, 0.995, 1.005), Verdict.SAME),
        ((1.005, 1.001, 1.009), Verdict.SAME),
        ((1.0, 0.9, 1.1), Verdict.UNCLEAR),
        ((1.03, 0.999, 1.06), Verdict.UNCLEAR),
        ((1.008, 1.001, 1.015), Verdict.UNCLEAR),
        ((1.03, 1.001, 1.06), Verdict.SLOWER),
        ((math.nan, 0.9, 1.1), Verdict.INCOMPARABLE),
        ((1.0, math.nan, 1.1), Verdict.INCOMPARABLE),
        ((1.0, 0.9, math.inf), Verdict.INCOMPARABLE),
        ((1.0, 0.0, 1.1), Verdict.INCOMPARABLE),
        ((-1.0, -2.0, -0.5), Verdict.INCOMPARABLE),
        ((1.3, 1.0, 1.2), Verdict.INCOMPARABLE),
    ],
)
def test_the_rule(limits, expected):
    found, reason = verdict(interval(*limits))
    assert found is expected
    assert reason


@pytest.mark.parametrize(
    ("limits", "processes", "expected"),
    [
        ((1.1, 1.09, 1.11), 3, Verdict.UNCLEAR),
        ((0.9, 0.89, 0.91), 4, Verdict.UNCLEAR),
        ((1.1, 1.09, 1.11), 5, Verdict.SLOWER),
        ((0.9, 0.89, 0.91), 5, Verdict.FASTER),
        ((1.3, 1.2, 1.4), 3, Verdict.SLOWER),
        ((0.7, 0.6, 0.79), 3, Verdict.FASTER),
        ((1.0, 0.999, 1.001), 3, Verdict.SAME),
    ],
)
def test_programs_that_are_close_need_five_processes(limits, processes, expected):
    found, reason = verdict(interval(*limits), processes=processes)
    assert found is expected
    assert ("needs more processes" in reason) == (expected is Verdict.UNCLEAR)


@pytest.mark.parametrize("processes", [1, 2])
def test_fewer_than_three_processes_are_unclear_whatever_they_say(processes):
    found, reason = verdict(interval(0.5, 0.49, 0.51), processes=processes)
    assert found is Verdict.UNCLEAR
    assert "at least 3" in reason


def test_an_interval_of_a_lower_level_carries_no_verdict():
    assert verdict(interval(0.5, 0.49, 0.51, level=0.95))[0] is Verdict.UNCLEAR


def test_without_an_interval_nothing_is_comparable():
    assert verdict(None, processes=9) == (Verdict.INCOMPARABLE, "no samples")


@pytest.mark.parametrize("threshold", [math.nan, -0.1, math.inf])
def test_a_threshold_is_a_number(threshold):
    with pytest.raises(ValueError, match="threshold"):
        verdict(interval(1, 0.9, 1.1), threshold=threshold)


@given(
    st.lists(
        st.lists(st.tuples(st.floats(0.9, 1.1), st.floats(0.9, 1.1)), min_size=2, max_size=5),
        min_size=3,
        max_size=5,
    )
)
def test_swapping_the_sides_mirrors_the_verdict(paired):
    one = paired_ratio(paired).interval()
    other = paired_ratio([[(b, a) for a, b in rounds] for rounds in paired]).interval()
    if abs(math.log(one.estimate)) > 1e-6:
        found = verdict(one)[0]
        assert verdict(other)[0] is MIRRORED.get(found, found)


def test_tukeys_fences_of_a_known_set():
    # Quartiles of 1..11 are 3.5 and 8.5: fences at -4 and 16, and at -11.5 and 23.5.
    known = list(range(1, 12))
    assert tukey_outliers(known) == (0, 0)
    # With 17 and 40 added they are 4 and 10: fences at 19 and 28, so 17 is not an outlier.
    assert tukey_outliers([*known, 17, 40]) == (0, 1)
    assert tukey_outliers([*known, 20, 40]) == (1, 1)
    assert tukey_outliers([]) == (0, 0)
    assert tukey_outliers([5.0]) == (0, 0)


@given(st.lists(st.floats(0.1, 100), min_size=1, max_size=30), st.randoms())
def test_outliers_do_not_depend_on_the_order(samples, random):
    shuffled = random.sample(samples, len(samples))
    assert tukey_outliers(shuffled) == tukey_outliers(samples)


@pytest.mark.parametrize("spread", [0.005, 0.03, 0.1])
@pytest.mark.parametrize("count", [20, 60])
def test_noise_alone_is_mostly_steady(spread, count):
    random = np.random.default_rng(0)
    found = [steadiness(np.exp(spread * random.standard_normal(count))).steady for _ in range(100)]
    assert sum(found) >= 90


@pytest.mark.parametrize(
    ("samples", "reason"),
    [
        ([5.0, *[1.0, 1.01] * 20], "first sample"),
        ([1.5 - 0.01 * i for i in range(40)], "mean"),
        ([*[1.07, 1.071] * 10, *[1.0, 1.001] * 10], "quartile"),
        ([*[0.7, 1.3] * 20, *[0.99, 1.01] * 20], "spread"),
        ([1.0] * 7, "at least 8"),
        ([], "at least 8"),
        ([1.0] * 9 + [math.nan], "finite"),
        ([1.0] * 9 + [0.0], "positive"),
    ],
)
def test_what_is_not_steady_gives_the_reason(samples, reason):
    found = steadiness(samples)
    assert not found.steady
    assert reason in found.reason


def test_steadiness_keeps_the_evidence():
    found = steadiness([1.0, 2.0] * 10)
    assert found.steady
    assert found.first_half.mean_ms == 1.5
    assert found.second_half.samples == 10


def test_identical_samples_are_steady():
    assert steadiness([1.0] * 20).steady


def test_precision_is_that_of_the_median():
    random = np.random.default_rng(0)
    found = [relative_precision(1 + 0.02 * random.standard_normal(400)) for _ in range(100)]
    # t of 19 degrees of freedom, and the standard error of a median.
    expected = 2.093 * 0.02 * math.sqrt(math.pi / 2 / 400)
    assert np.mean(found) == pytest.approx(expected, rel=0.15)


def test_precision_is_reached_with_samples():
    samples = list(1 + 0.05 * np.random.default_rng(0).standard_normal(2000))
    assert relative_precision(samples[:7]) == math.inf
    assert relative_precision(samples[:20]) > 0.01
    assert relative_precision(samples) <= 0.01
    with pytest.raises(SampleError):
        relative_precision([1.0, math.nan])


def test_noise_has_converged_when_more_blocks_bring_nothing():
    falling = [1 / math.sqrt(n) for n in range(1, 200)]
    assert not noise_converged(falling[:15])
    assert not noise_converged(falling[:40])
    assert noise_converged(falling)
    assert noise_converged([0.02] * 16)
    assert not noise_converged([math.inf] * 16)
    assert not noise_converged([])
