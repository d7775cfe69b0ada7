"""Summaries of samples, against values known by hand."""

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from comparative_benchmark.results.outcome import summarize


def test_known_values():
    summary = summarize([2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0], "latency_ms")
    assert summary == {
        "min_latency_ms": 2.0,
        "max_latency_ms": 9.0,
        "mean_latency_ms": 5.0,
        "median_latency_ms": 4.5,
        "stddev_latency_ms": pytest.approx(2.1380899),
        "mad_latency_ms": 0.5,
    }


def test_one_sample_has_no_standard_deviation():
    summary = summarize([3.0], "x")
    assert summary["stddev_x"] is None
    assert summary["mad_x"] == 0
    assert summary["min_x"] == summary["median_x"] == summary["max_x"] == 3


def test_no_samples_no_summary():
    assert summarize([], "x") == {}


@pytest.mark.parametrize(
    ("count", "percentiles"),
    [
        (49, set()),
        (50, {"p90_x"}),
        (99, {"p90_x"}),
        (100, {"p90_x", "p95_x"}),
        (499, {"p90_x", "p95_x"}),
        (500, {"p90_x", "p95_x", "p99_x"}),
    ],
)
def test_a_percentile_needs_five_samples_beyond_it(count, percentiles):
    summary = summarize([float(value) for value in range(count)], "x")
    assert {key for key in summary if key[1].isdigit()} == percentiles


def test_percentiles_interpolate_between_samples():
    summary = summarize([float(value) for value in range(501)], "x")
    assert (summary["p90_x"], summary["p95_x"], summary["p99_x"]) == (450, 475, 495)


def test_order_does_not_matter():
    samples = [5.0, 1.0, 4.0, 2.0] * 30
    assert summarize(samples, "x") == summarize(sorted(samples), "x")


@given(st.lists(st.floats(0, 1e6), min_size=2, max_size=200))
def test_statistics_keep_their_order(samples):
    summary = summarize(samples, "x")
    assert summary["min_x"] <= summary["median_x"] <= summary["max_x"]
    assert summary["stddev_x"] == pytest.approx(statistics.stdev(samples), rel=1e-6, abs=1e-9)
    found = [summary[key] for key in ("median_x", "p90_x", "p95_x", "p99_x") if key in summary]
    assert found == sorted(found)
