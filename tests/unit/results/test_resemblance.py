"""Processes that resemble the previous one make an interval too narrow; this is reported."""

import numpy as np
import pytest
from test_compare import compare_to_baseline, metrics, record

from comparative_benchmark.analysis.stats.analysis import Verdict
from comparative_benchmark.analysis.stats.steadiness import FEWEST_PROCESSES, resembles
from comparative_benchmark.terminal.tables import unclear_lines


def series(random, coefficient, count=10):
    values = random.standard_normal(count)
    values[1:] *= np.sqrt(1 - coefficient**2)
    for place in range(1, count):
        values[place] += coefficient * values[place - 1]
    return values


@pytest.mark.parametrize(
    ("coefficient", "low", "high"), [(0.0, 0.0, 0.016), (0.5, 0.08, 0.14), (0.8, 0.25, 0.34)]
)
def test_the_share_that_is_found_is_the_one_that_is_claimed(coefficient, low, high):
    random = np.random.default_rng(0)
    found = np.mean([resembles(series(random, coefficient)) for _ in range(2000)])
    assert low <= found <= high


def test_a_trend_is_found_and_fewer_values_show_nothing():
    assert resembles(range(FEWEST_PROCESSES))
    assert not resembles(range(FEWEST_PROCESSES - 1))
    assert not resembles([1.1] * FEWEST_PROCESSES)


def test_equal_values_do_not_resemble_each_other_more_than_others():
    random = np.random.default_rng(5)
    found = np.mean([resembles(random.integers(0, 2, 10)) for _ in range(2000)])
    assert found < 0.03
    assert not resembles([0, 9] * 5)


def raced(steps):
    """An eager baseline of 1 ms, and a candidate whose processes take these times."""
    records = []
    for competitor, times in (("pt_inductor:eager", [1.0] * len(steps)), ("jax_xla:xla", steps)):
        level = metrics(1, processes=len(steps), race="r")
        for process, time in zip(level["processes"], times, strict=True):
            for block in process["blocks"]:
                block["latencies_ms"] = [time] * len(block["latencies_ms"])
        records.append(record("w1", competitor, level=level))
    return compare_to_baseline(records)[-1]


def test_a_close_ratio_of_such_processes_has_no_verdict():
    rising = [1.1 + 0.001 * place for place in range(10)]
    found = raced(rising)
    assert (found.verdict, found.withheld) == (Verdict.UNCLEAR, Verdict.SLOWER)
    assert found.reason == "consecutive processes are correlated, so the interval is too narrow"
    # The interval excludes 1, so a line below the table gives the reason.
    [line] = map(str, unclear_lines([found]))
    assert line == f"unclear  jax_xla:xla: {found.reason}"
    shuffled = [rising[place] for place in (4, 9, 0, 6, 2, 8, 1, 7, 3, 5)]
    assert raced(shuffled).verdict is Verdict.SLOWER
    assert unclear_lines([raced(shuffled)]) == []
    assert raced([2 * time for time in rising]).verdict is Verdict.SLOWER
    # Rounds of a single process may resemble each other.
    assert raced([1.1]).reason.startswith("1 process (the interval is within one process)")
