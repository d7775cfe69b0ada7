"""Blocks that are too short to be judged one by one are judged together."""

import pytest

from comparative_benchmark.analysis.machine.conditions import Conditions, Totals
from comparative_benchmark.results.outcome import contention_of, contention_warning
from comparative_benchmark.results.record import Block, Contention


def block(*, foreign_ms, window_ms=50.0, contended=None):
    """A block of two threads on two CPUs, as a worker reports it."""
    totals = Totals(
        own_cpu_ms=2 * window_ms - foreign_ms,
        wall_ms=window_ms,
        window_ms=window_ms,
        capacity_ms=2 * window_ms,
        spare_ms=0.0,
        foreign_ms=foreign_ms,
        steal_ms=0.0,
        error_ms=5.0,
        throttled_ms=0.0,
        thermal_throttles=0,
        involuntary_switches=0,
    )
    conditions = Conditions(
        cpu_wall_ratio=2.0,
        foreign_cpu_share=0.0,
        steal_share=0.0,
        throttled_ms=0.0,
        load1=1.0,
        involuntary_switches=0,
        mean_mhz=None,
        contended=contended,
        reasons=(),
        totals=totals,
    )
    return Block(latencies_ms=(1.0,), conditions=conditions)


def test_a_few_plain_blocks_do_not_make_a_disturbed_trial():
    quiet = [block(foreign_ms=(-5.0, 5.0)[i % 2]) for i in range(390)]
    plain = [block(foreign_ms=30.0, contended=True) for _ in range(10)]
    found = contention_of([*quiet, *plain])
    assert (found.contended_blocks, found.clean_blocks) == (10, 0)
    assert found.not_judged_blocks == 390
    assert found.contended is False
    assert found.foreign_cpu_share == pytest.approx(300 / 40000)


def test_a_little_in_each_block_adds_up():
    found = contention_of([block(foreign_ms=5.0) for _ in range(400)])
    assert found.contended is True
    assert found.reasons == ("other processes used 0.10 of a CPU (limit 0.05)",)


def test_few_blocks_are_not_judged():
    found = contention_of([block(foreign_ms=5.0) for _ in range(3)])
    assert found.contended is None
    assert "with an error of" in found.reasons[0]


def test_blocks_that_tell_nothing_and_no_blocks_are_not_judged():
    assert contention_of([Block(latencies_ms=(1.0,))]).contended is None
    assert contention_of([]).contended is None


def test_a_warning_names_how_many_trials_and_the_worst():
    quiet = contention_of([block(foreign_ms=0.0) for _ in range(400)])
    loud = contention_of([block(foreign_ms=50.0) for _ in range(400)])
    unknown = Contention(contended_blocks=3)  # of an older results file
    assert contention_warning([quiet, unknown]) is None
    said = contention_warning([quiet, loud, contention_of([block(foreign_ms=5.0)] * 400)])
    assert said is not None
    assert said.startswith("disturbances in 2 of 3 trials (other processes used 1.00 of a CPU")
