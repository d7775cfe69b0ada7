"""Counts of outliers, by process."""

import pytest

from comparative_benchmark.results.outcome import outlier_counts
from comparative_benchmark.results.record import Outliers

STEADY = [1.0, 1.01, 1.02, 1.03, 1.04] * 4


def test_outliers_are_counted_as_mild_and_severe():
    # Quartiles 1.01 and 1.03: fences at 1.06 and 1.09.
    assert outlier_counts([STEADY]) == Outliers(mild=0, severe=0)
    assert outlier_counts([[*STEADY, 1.08], [*STEADY, 5.0, 0.1]]) == Outliers(mild=1, severe=2)


def test_processes_have_fences_of_their_own():
    slow = [2 * value for value in STEADY]
    assert outlier_counts([STEADY, STEADY, STEADY, STEADY, slow]) == Outliers(mild=0, severe=0)
    pooled = [*STEADY * 4, *slow]
    assert outlier_counts([pooled]).severe == len(slow)


@pytest.mark.parametrize("processes", [[], [[]], [[], []]])
def test_no_samples_have_no_outliers(processes):
    assert outlier_counts(processes) == Outliers(mild=0, severe=0)
