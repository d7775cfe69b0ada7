"""Rows of the history: refusals and identity; and seeded nights for the rest."""

import datetime
import math

import msgspec
import numpy as np
import pytest

from comparative_benchmark.reporting.history.rows import DIMENSIONS, Row, RowError

START = datetime.datetime(2026, 10, 1, 2, 30, tzinfo=datetime.UTC)
NOISE = 0.01


def row(**changes):
    made = {
        "workload": "bert-tiny",
        "workload_digest": "w1",
        "benchmark": "models/BERT",
        "framework": "jax",
        "level": "framework_level",
        "data_type": "fp32",
        "batch_size": 1,
        "backend": "jax_xla",
        "compiler": "xla",
        "device": "host-cpu",
        "machine": "A CPU",
        "threads": 2,
        "time": START,
        "run_id": "run-0",
        "revision": "abc",
        "versions": {"jax": "0.10.1"},
        "program": "p" * 64,
        "status": "ok",
        "latency_ms": 1.0,
        "latency_low_ms": 0.99,
        "latency_high_ms": 1.01,
        "processes": 3,
        "compile_ms": 100.0,
        "warm_compile_ms": 20.0,
        "host_memory_mb": 300.0,
        "device_memory_mb": None,
        "error": 1e-6,
    }
    return Row(**{**made, **changes})


def night(number, **changes):
    """Fields of a run on that night, with its own versions and program."""
    return {
        "time": START + datetime.timedelta(days=number),
        "run_id": f"run-{number}",
        "revision": f"rev{number}",
        "versions": {"jax": f"0.10.{number}", "numpy": "2.4.6"},
        "program": f"{number:064x}",
        **changes,
    }


def noisy_nights(seed, *, nights=30, cases=4, noise=NOISE, plant=lambda case, number: {}):
    """Rows of nights whose metrics scatter; `plant` changes fields, None omits a case.

    A planted number is a factor of the metric; any other value replaces the field.
    """
    random = np.random.default_rng(seed)
    made = []
    for number in range(nights):
        for case in range(cases):
            levels = {
                "latency_ms": 1.0 + case,
                "compile_ms": 100.0 * (1 + case),
                "warm_compile_ms": 20.0 * (1 + case),
                "host_memory_mb": 300.0 + case,
                "error": 1e-6 * (1 + case),
            }
            changes = {
                name: level * math.exp(noise * random.standard_normal())
                for name, level in levels.items()
            }
            planted = plant(case, number)
            if planted is None:
                continue
            for name, value in planted.items():
                changes[name] = changes[name] * value if name in levels and value else value
            if changes["latency_ms"] is None:
                changes |= {"latency_low_ms": None, "latency_high_ms": None}
            else:
                changes["latency_low_ms"] = changes["latency_ms"] * 0.995
                changes["latency_high_ms"] = changes["latency_ms"] * 1.005
            name = f"case-{case}"
            identity = {"workload": name, "workload_digest": name, "benchmark": f"models/{name}"}
            made.append(row(**{**night(number), **identity, **changes}))
    return made


def test_a_row_has_the_competitor_as_the_command_line_takes_it():
    assert row().competitor == "jax_xla:xla"
    assert row(compiler="").competitor == "jax_xla"
    made = row(compiler="inductor", options=["freezing", "tf32"], environment="old")
    assert made.competitor == "jax_xla:inductor+freezing+tf32@old"


def test_what_changes_from_night_to_night_is_no_dimension_of_a_trend():
    first, second = row(), row(**night(5), latency_ms=2.0, latency_low_ms=1.9, latency_high_ms=2.2)
    assert first.series == second.series
    assert len(first.series) == len(DIMENSIONS)
    for name in DIMENSIONS:
        if name == "options":
            other = ("o",)
        else:
            other = 7 if isinstance(getattr(first, name), int) else "other"
        assert msgspec.structs.replace(first, **{name: other}).series != first.series


def test_content_is_that_of_all_fields_or_of_the_identity_alone():
    assert row().content == row().content
    east = datetime.timezone(datetime.timedelta(hours=2))
    assert row(time=START.astimezone(east)).content == row().content
    for changes in ({"latency_ms": 1.005}, {"time": night(1)["time"]}, {"extra": {"a": [1]}}):
        assert row(**changes).content != row().content
    one = row(identity="record 1")
    assert one.content == row(identity="record 1", error=0.5).content
    assert one.content != row(identity="record 2").content
    assert one.content != row(identity="record 1", source="oss-v3").content


WRONG = {
    "no workload": ({"workload": ""}, r"length >= 1 - at `\$.workload`"),
    "a workload that is not text": ({"workload": 1}, r"`\$.workload`"),
    "a zero byte": ({"reason": "a\0b"}, r"`\$.reason`"),
    "half a character": ({"device": "\ud800"}, r"`\$.device`"),
    "an unknown status": ({"status": "fine"}, r"ok\|unsteady.+`\$.status`"),
    "an unhashable status": ({"status": []}, r"`\$.status`"),
    "a time without a zone": ({"time": datetime.datetime(2026, 1, 1)}, r"`\$.time`"),  # noqa: DTZ001
    "no time": ({"time": "2026-01-01"}, r"`\$.time`"),
    "not a number": ({"latency_ms": math.nan}, r"`\$.latency_ms`"),
    "infinite": ({"host_memory_mb": math.inf}, r"`\$.host_memory_mb`"),
    "negative": ({"compile_ms": -1.0}, r">= 0.0 - at `\$.compile_ms`"),
    "text for a number": ({"error": "1"}, r"`\$.error`"),
    "a truth value for a number": ({"error": True}, r"`\$.error`"),
    "a fraction of a thread": ({"threads": 1.5}, r"`\$.threads`"),
    "a count beyond a column": ({"processes": 2**31}, r"`\$.processes`"),
    "half an interval": (
        {"latency_low_ms": None},
        "a latency interval needs a lower and an upper bound",
    ),
    "an interval that is upside down": ({"latency_low_ms": 2.0}, "is above upper bound"),
    "versions in a list": ({"versions": ["jax"]}, r"`\$.versions`"),
    "a version that is not text": ({"versions": {"jax": 1}}, r"`\$.versions\[...\]`"),
    "extra that is not JSON": ({"extra": {"a": {1}}}, "extra is not JSON"),
    "extra with NaN": ({"extra": {"a": math.nan}}, "extra is not JSON"),
}


@pytest.mark.parametrize(("changes", "said"), WRONG.values(), ids=WRONG)
def test_what_no_row_can_be_is_refused_by_field(changes, said):
    with pytest.raises(RowError, match=said):
        row(**changes)
