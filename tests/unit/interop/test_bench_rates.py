"""Events, warm-up, and the numbers of milabench's table."""

import json
import math
import random

import pytest

from comparative_benchmark.interop.milabench.measuring import together, without_warmup
from comparative_benchmark.interop.milabench.processes.observed import (
    EventLines,
    Observed,
    SmuggledEvents,
)


def smuggled(text):
    """As voir.smuggle writes it."""
    digits = str.maketrans("abcdef", ":;<=>?")
    return f"\x1b[{text.encode().hex().translate(digits)}z".encode()


def test_events_survive_any_cut_of_the_stream():
    events = [{"task": "train", "rate": i + 0.5, "text": "ü\x1b[1m"} for i in range(50)]
    lines = b"".join(json.dumps(e).encode() + b"\n" for e in events)
    output = b"".join(
        b"a\x1b[31mred" + smuggled(json.dumps(e)) + b"text\n" + smuggled("\n") for e in events
    )
    chance = random.Random(7)
    for _ in range(20):
        direct, hidden, text = EventLines(), SmuggledEvents(), b""
        found, found_hidden = [], []
        for stream in (lines, output):
            at = 0
            while at < len(stream):
                piece = stream[at : at + chance.randint(1, 90)]
                at += len(piece)
                if stream is lines:
                    found += direct.feed(piece)
                else:
                    shown, told = hidden.feed(piece)
                    text += shown
                    found_hidden += told
        text += hidden.close()
        assert found == found_hidden == events
        assert direct.garbage == hidden.garbage == 0
        assert text == b"a\x1b[31mredtext\n" * 50


def test_a_steady_script_loses_no_rate():
    rates = [637.0 + 0.1 * (i % 3) for i in range(20)]
    found = without_warmup(rates)
    assert (found.warmup, found.is_steady, len(found.rates)) == (0, True, 20)
    assert found.rate == pytest.approx(637.1)


def test_a_warmup_is_dropped_as_in_milabenchs_own_sample():
    # First rates of a quarter: pooled, they make 1 % of scatter look like 12 %.
    rates = [47.0, 56.0, 130.0] + [206.0 + 0.5 * (i % 4) for i in range(27)]
    found = without_warmup(rates)
    assert found.warmup == 3
    assert found.is_steady
    assert found.rate == pytest.approx(206.75, abs=0.3)


def test_what_never_settles_is_no_speed():
    assert not without_warmup([2.0**i for i in range(16)]).is_steady


def test_few_rates_are_taken_as_the_script_gives_them():
    found = without_warmup([10.0, 11.0, 12.0])
    assert (found.rates, found.warmup, found.steadiness) == ((10.0, 11.0, 12.0), 0, None)
    assert not without_warmup([]).is_steady


def test_processes_that_run_at_once_add_up_from_their_ends():
    assert together([[1.0, 2.0, 3.0], [10.0, 20.0]]) == [12.0, 23.0]
    assert together([[1.0], []]) == []


def test_what_was_observed():
    seen = Observed()
    for event in (
        {"task": "train", "rate": 5.0, "units": "tok/s"},
        {"task": "train", "rate": 6.0, "units": "img/s"},
        {"task": "early_stop", "progress": [5, 4]},
        {"task": "eval", "rate": 9.0},
        {"task": "train", "loss": 10**400},
        {"task": "main", "gpudata": {"0": {"memory": [10, 99], "load": 0.5}, "1": {"memory": [5]}}},
        {"task": "main", "gpudata": {}},
        {"task": "train", "progress": [3, 10]},
        {"task": "train", "progress": [0, 10]},
        {"$event": "stop"},
    ):
        seen.take(event)
    assert (seen.task, seen.measured, seen.measured_units) == ("train", [5.0], "tok/s")
    assert dict(seen.oddities) == {"rates with different units from the first": 1}
    assert seen.nan_loss == 1
    assert math.isclose(seen.device_memory_mb, 15.0)
    assert (seen.device_use, seen.progress, seen.stop_asked) == (0.5, (0, 10), True)
    assert not seen.is_complete
    for rate in (5.0, 5.0, 5.0):
        seen.take({"task": "train", "rate": rate, "units": "tok/s"})
    assert (seen.wanted, seen.is_complete) == (4, True)
