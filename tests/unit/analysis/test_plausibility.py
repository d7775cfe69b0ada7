"""Times that cannot be true, and honest ones that look odd."""

import attrs
import pytest

from comparative_benchmark.analysis.verification.plausibility import (
    TimedBlock,
    clock_problem,
    enough_ms,
    fresh_run_problem,
    latency_problem,
)

HONEST = TimedBlock(
    samples_ms=49.0,
    iterations=10,
    extra=1,
    wall_ms=50.0,
    cpu_ms=95.0,
    seen_ms=62.0,
    seen_cpu_ms=112.0,
)


def blocks(**changes):
    return [attrs.evolve(HONEST, **changes)] * 5


def test_honest_blocks_pass():
    assert clock_problem(blocks(), cpus=2) is None
    assert clock_problem([], cpus=2) is None


def test_a_worker_that_was_held_up_now_and_then_is_honest():
    held_up = [*blocks(), *blocks(seen_ms=9000.0)]
    assert clock_problem(held_up, cpus=2) is None
    # While it waits for a CPU, its wall time grows and its CPU time does not.
    assert clock_problem(blocks(wall_ms=9000.0, samples_ms=8999.0, seen_ms=9100.0), cpus=2) is None


def test_a_single_block_may_be_delayed_between_samples():
    one = attrs.evolve(HONEST, wall_ms=400.0, seen_ms=420.0)
    assert clock_problem([one], cpus=2) is None
    assert "between" in clock_problem([attrs.evolve(one, wall_ms=900.0, seen_ms=920.0)], cpus=2)


def test_work_between_samples_is_not_made_up_for_by_other_blocks():
    hidden = attrs.evolve(HONEST, samples_ms=20.0, wall_ms=100.0, seen_ms=120.0)
    plain = attrs.evolve(HONEST, samples_ms=99.0, wall_ms=100.0, seen_ms=120.0)
    assert "between" in clock_problem([*[hidden] * 17, *[plain] * 13], cpus=2)
    assert clock_problem([*[hidden] * 13, *[plain] * 17], cpus=2) is None


def test_iterations_of_the_device_clock_are_not_hidden_time():
    longer = blocks(extra=11, seen_ms=120.0, seen_cpu_ms=210.0)
    assert clock_problem(longer, cpus=2) is None


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"samples_ms": 60.0}, "add up to 300 ms, but its blocks took 250 ms"),
        ({"wall_ms": 250.0, "seen_ms": 270.0}, "took 1.25e+03 ms: it works between samples"),
        ({"cpu_ms": 130.0}, "650 ms of CPU time in 250 ms, more than 2 CPUs can provide"),
        ({"wall_ms": 80.0, "cpu_ms": 90.0}, "400 ms for blocks that took 310 ms"),
        ({"seen_ms": 5000.0}, "each took at least"),
        ({"seen_cpu_ms": 900.0}, "of CPU time in blocks for which it reports 475 ms"),
    ],
)
def test_a_wrong_clock_is_seen(changes, reason):
    assert reason in clock_problem(blocks(**changes), cpus=2)


def test_cpu_time_that_nobody_could_read_is_no_evidence():
    assert clock_problem(blocks(seen_cpu_ms=None), cpus=2) is None


def least(**given):
    given = {"flops": None, "weight_bytes": None, "element_type": "f32", "cpus": 2} | given
    return latency_problem([0.001, 0.001, 5.0], **given)


def test_no_program_is_faster_than_its_cores():
    assert least() is None
    assert least(flops=1_000_000) is None
    assert "arithmetic of an iteration (6.3e+07 FLOP)" in least(flops=63_000_000)
    assert least(flops=63_000_000, element_type="") is None  # fewer bits may be faster
    assert least(weight_bytes=1_000_000) is None
    assert "weights of an iteration (1e+08 bytes)" in least(weight_bytes=100_000_000)
    assert latency_problem([], flops=10**9, weight_bytes=0, element_type="f32", cpus=1) is None


def test_runs_on_new_inputs_may_be_cold_and_late_but_not_all_of_them():
    assert fresh_run_problem(1.0, []) is None
    assert fresh_run_problem(1.0, [15.0]) is None
    assert fresh_run_problem(1.0, [500.0, 400.0, 3.0]) is None
    assert "takes at least 400 ms (2 runs)" in fresh_run_problem(1.0, [500.0, 400.0])
    assert enough_ms(1.0) == pytest.approx(20.5)
