"""Phases: announced, timed, added up, and remembered when something breaks."""

import pytest

from comparative_benchmark.engine.worker.phases import (
    PhaseClock,
    forget_peak_memory,
    give_back_memory,
    peak_memory_bytes,
    resident_memory_bytes,
)


def test_phases_are_announced_and_nested_ones_give_way_to_the_outer_one():
    said = []
    clock = PhaseClock(lambda message: said.append(message["phase"]))
    with clock("compile"), clock("lower"):
        assert clock.current == "lower"
    assert clock.current is None
    assert said == ["compile", "lower", "compile"]
    assert set(clock.records) == {"compile", "lower"}
    assert clock.records["lower"].ms <= clock.records["compile"].ms


def test_entering_a_phase_again_adds_to_it():
    clock = PhaseClock(lambda _: None)
    times = []
    for _ in range(3):
        with clock("d2h"):
            sum(range(1000))
        times.append(clock.records["d2h"].ms)
    assert 0 < times[0] < times[1] < times[2]


def test_after_an_exception_the_phase_stays_current_and_has_no_time():
    clock = PhaseClock(lambda _: None)
    with pytest.raises(ValueError, match="broken"), clock("compile"):
        raise ValueError("broken")
    assert clock.current == "compile"
    assert "compile" not in clock.records


def test_peak_memory_is_in_bytes():
    peak = peak_memory_bytes()
    assert peak is not None
    assert 10 * 2**20 < peak < 64 * 2**30
    with_ballast = bytearray(64 * 2**20)
    with_ballast[::4096] = b"x" * len(with_ballast[::4096])
    assert peak_memory_bytes() >= peak


def test_the_peak_starts_again_for_each_model():
    ballast = bytearray(b"x") * (96 * 2**20)
    highest = peak_memory_bytes()
    del ballast
    give_back_memory()
    if not forget_peak_memory():
        pytest.skip("this container does not let a process reset its peak of memory")
    base = resident_memory_bytes()
    assert peak_memory_bytes() < highest - 64 * 2**20
    ballast = bytearray(b"x") * (32 * 2**20)
    del ballast
    assert 30 * 2**20 < peak_memory_bytes() - base < 64 * 2**20


def test_a_whole_phase_takes_what_is_entered_in_it_for_a_part_of_it():
    said = []
    clock = PhaseClock(said.append)
    with clock("compile"):
        pass
    first_ms = clock.records["compile"].ms
    with clock.whole("verification_compile"):
        assert clock.current == "verification_compile"
        with clock("compile"), clock("load"):
            assert clock.current == "verification_compile"
    assert clock.records["compile"].ms == first_ms
    assert set(clock.records) == {"compile", "verification_compile"}
    assert [message["phase"] for message in said] == ["compile", "verification_compile"]
    with clock("load"):
        assert clock.current == "load"


def test_a_whole_phase_that_fails_is_the_one_that_is_told_and_can_be_left():
    clock = PhaseClock(lambda _: None)
    with pytest.raises(ValueError, match="no"), clock.whole("generation"), clock("compile"):
        raise ValueError("no")
    assert clock.current == "generation"
    clock.abandon()
    assert clock.current is None
    with clock("load"):
        pass
    assert set(clock.records) == {"load"}
