"""Intervals against closed forms, simulated truth, and properties that they must have."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from comparative_benchmark.analysis.stats.analysis import (
    SHARE_OF_ERROR,
    Interval,
    SampleError,
    latency_interval,
    paired_ratio,
    student_quantile,
    student_tail,
    unpaired_ratio,
)

LATENCY = st.floats(0.01, 1e4)
PROCESSES = st.lists(st.lists(LATENCY, min_size=1, max_size=12), min_size=2, max_size=6)
PAIRED = st.lists(
    st.lists(st.tuples(LATENCY, LATENCY), min_size=1, max_size=8), min_size=2, max_size=6
)
BAD_SAMPLES = {
    "NaN": (float("nan"), "NaN or infinite"),
    "infinite": (float("inf"), "NaN or infinite"),
    "zero": (0.0, "zero or negative"),
    "negative": (-1.0, "zero or negative"),
    "text": ("fast", "not a number"),
    "none": (None, "NaN or infinite"),
}


def limits(interval: Interval) -> tuple[float, float, float]:
    return interval.low, interval.estimate, interval.high


def noisy(seed: int, processes: int, samples: int = 30, *, outer=0.02, inner=0.02):
    random = np.random.default_rng(seed)
    logs = outer * random.standard_normal((processes, 1))
    return np.exp(logs + inner * random.standard_normal((processes, samples)))


@pytest.mark.parametrize("probability", [0.5, 0.9, 0.975, 0.99, 0.999])
@pytest.mark.parametrize("degrees", [1, 1.7, 2, 3, 5, 12.5, 60, 3000])
def test_student_quantiles_are_the_published_ones(probability, degrees):
    expected = stats.t.ppf(probability, degrees)
    assert student_quantile(probability, degrees) == pytest.approx(expected, rel=1e-7, abs=1e-9)


def test_student_quantiles_become_normal():
    assert student_quantile(0.975, math.inf) == pytest.approx(1.959964, rel=1e-6)


@pytest.mark.parametrize("distance", [0.0, 1.0, 4.0, 30.0])
@pytest.mark.parametrize("degrees", [1, 2.5, 9, 200])
def test_student_tails_are_the_published_ones(distance, degrees):
    assert student_tail(distance, degrees) == pytest.approx(stats.t.sf(distance, degrees), rel=1e-6)


@pytest.mark.parametrize("processes", [4, 6, 10])
def test_a_latency_has_the_t_interval_of_its_process_medians(processes):
    samples = noisy(1, processes)
    medians = np.median(samples, axis=1)
    width = stats.t.ppf(0.975, processes - 1) * stats.sem(np.log(medians))
    found = latency_interval(samples)
    mean = medians.mean()
    assert limits(found) == pytest.approx((mean * np.exp(-width), mean, mean * np.exp(width)))
    assert found.processes == processes


@pytest.mark.parametrize("processes", [3, 6])
@pytest.mark.parametrize("outer", [0.0, 0.02])
def test_95_percent_intervals_hold_the_truth_95_times_in_100(processes, outer):
    # 500 experiments: Monte-Carlo standard error 1 %, so the band is three of them wide.
    # `benchmarks/aa_simulation.py` shows coverage with the stopping rule inside.
    held = 0
    for seed in range(500):
        samples = noisy(seed, processes, 15, outer=outer)
        found = latency_interval(samples)
        held += found.low <= math.exp(outer**2 / 2) <= found.high
    assert 0.92 <= held / 500 <= 0.98


def test_of_one_process_the_interval_is_its_own_and_reports_it():
    samples = noisy(3, 1, 400, inner=0.05)
    found = latency_interval(samples)
    assert found.processes == 1
    assert found.scope == "95 %, within one process"
    # Standard error of a median of normal samples.
    expected = 1.96 * 0.05 * math.sqrt(math.pi / 2 / 400)
    assert found.relative_half_width == pytest.approx(expected, rel=0.35)


def test_autocorrelation_widens_the_interval_of_one_process():
    random = np.random.default_rng(5)
    noise = random.standard_normal(2000)
    for index in range(1, noise.size):
        noise[index] += 0.95 * noise[index - 1]
    mixed = random.permutation(noise)
    widths = [
        latency_interval([10 + 0.1 * values]).relative_half_width for values in (noise, mixed)
    ]
    assert widths[0] > 2.5 * widths[1]


def test_a_paired_ratio_does_not_see_drift_that_both_sides_share():
    random = np.random.default_rng(0)
    paired = []
    for _ in range(6):
        drift = np.exp(np.cumsum(0.1 * random.standard_normal(30)))
        noise = np.exp(0.005 * random.standard_normal((30, 2)))
        paired.append([(1.03 * d * a, d * b) for d, (a, b) in zip(drift, noise, strict=True)])
    found = paired_ratio(paired).interval()
    assert found.low < 1.03 < found.high
    assert found.relative_half_width < 0.005


def ratio_level(level: float) -> float:
    return 1 - SHARE_OF_ERROR * (1 - level)


@pytest.mark.parametrize("level", [0.98, 0.95])
def test_an_unpaired_ratio_has_the_welch_interval(level):
    a, b = noisy(1, 8, outer=0.03), 1.2 * noisy(2, 5, outer=0.01)
    logs = [np.median(np.log(side), axis=1) for side in (a, b)]
    test = stats.ttest_ind(*logs, equal_var=False)
    expected = test.confidence_interval(ratio_level(level))
    found = unpaired_ratio(a, b)
    interval = found.interval(level)
    assert np.log([interval.low, interval.high]) == pytest.approx([*expected])
    assert found.p_value == pytest.approx(min(1, test.pvalue / SHARE_OF_ERROR))
    assert (interval.processes, interval.level) == (5, level)


@pytest.mark.parametrize("replicates", [3, 5, 10])
def test_a_paired_ratio_has_the_paired_t_interval(replicates):
    a, b = noisy(1, replicates, 12, outer=0.03), 1.02 * noisy(2, replicates, 12, outer=0.03)
    medians = np.median(np.log(a) - np.log(b), axis=1)
    test = stats.ttest_1samp(medians, 0)
    expected = test.confidence_interval(ratio_level(0.98))
    found = paired_ratio([list(zip(*sides, strict=True)) for sides in zip(a, b, strict=True)])
    interval = found.interval()
    assert np.log([interval.low, interval.high]) == pytest.approx([*expected])
    assert found.p_value == pytest.approx(min(1, test.pvalue / SHARE_OF_ERROR))
    assert np.log(interval.estimate) == pytest.approx(medians.mean())


@given(PAIRED)
def test_p_is_below_two_percent_exactly_where_the_interval_excludes_one(paired):
    ratio = paired_ratio(paired)
    interval = ratio.interval()
    if ratio.p_value is not None and abs(ratio.p_value - 0.02) > 1e-6 and interval.high < 1e300:
        assert (ratio.p_value < 0.02) is not (interval.low <= 1 <= interval.high)


@given(PROCESSES, st.floats(1e-3, 1e3))
def test_latencies_scale(processes, factor):
    one = latency_interval(processes)
    other = latency_interval([[factor * v for v in p] for p in processes])
    assert limits(other) == pytest.approx([factor * v for v in limits(one)], rel=1e-6, abs=1e-9)


@given(PROCESSES)
def test_the_order_of_processes_does_not_matter(processes):
    backwards = latency_interval(processes[::-1])
    assert limits(backwards) == pytest.approx(limits(latency_interval(processes)))


@given(PAIRED)
def test_paired_ratios_mirror(paired):
    one = paired_ratio(paired).interval()
    other = paired_ratio([[(b, a) for a, b in rounds] for rounds in paired]).interval()
    assert 1 / one.estimate == pytest.approx(other.estimate)
    # An even split of the signs leaves the direction to rounding: the noise of the bootstrap.
    if abs(math.log(one.estimate)) > 1e-6:
        assert (1 / one.high, 1 / one.low) == pytest.approx((other.low, other.high), rel=1e-6)


@given(PROCESSES, PROCESSES)
def test_unpaired_ratios_mirror(a, b):
    one, other = unpaired_ratio(a, b).interval(), unpaired_ratio(b, a).interval()
    assert 1 / one.estimate == pytest.approx(other.estimate)
    if abs(math.log(one.estimate)) > 1e-6:
        assert (1 / one.high, 1 / one.low) == pytest.approx((other.low, other.high), rel=1e-6)


@given(PROCESSES, PROCESSES, st.floats(1e-3, 1e3))
def test_ratios_do_not_depend_on_the_unit(a, b, factor):
    one = unpaired_ratio(a, b).interval()
    scaled = [[[factor * v for v in p] for p in side] for side in (a, b)]
    assert unpaired_ratio(*scaled).interval().estimate == pytest.approx(one.estimate)


@given(PAIRED)
def test_the_estimate_lies_in_its_interval(paired):
    found = paired_ratio(paired).interval()
    assert 0 < found.low <= found.estimate <= found.high < math.inf


@pytest.mark.parametrize(("value", "reason"), BAD_SAMPLES.values(), ids=BAD_SAMPLES)
def test_bad_samples_have_a_named_reason(value, reason):
    with pytest.raises(SampleError, match=reason):
        latency_interval([[1.0, 2.0], [1.0, value]])
    with pytest.raises(SampleError, match=reason):
        paired_ratio([[(1.0, 2.0)], [(1.0, value)]])
    with pytest.raises(SampleError, match=reason):
        unpaired_ratio([[1.0, 2.0]], [[value, 1.0]]).interval()


@pytest.mark.parametrize("processes", [[], [[]], [[1.0], []]])
def test_no_samples_is_a_reason(processes):
    with pytest.raises(SampleError, match="no samples"):
        latency_interval(processes)


def test_a_single_sample_is_a_reason():
    with pytest.raises(SampleError, match="only one sample"):
        latency_interval([[1.0]])
    with pytest.raises(SampleError, match="only one sample"):
        paired_ratio([[(1.0, 1.0)]])


def test_a_round_without_both_sides_is_a_reason():
    with pytest.raises(SampleError, match="lacks one of the two competitors"):
        paired_ratio([[(1.0,), (1.0, 2.0)]])


def test_processes_without_any_difference_have_no_width():
    assert limits(latency_interval([[2.0, 2.0]] * 3)) == (2.0, 2.0, 2.0)
