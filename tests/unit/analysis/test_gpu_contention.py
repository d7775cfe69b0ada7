"""Disturbances of a GPU: one block, a series, and their record in a results file."""

import json

import attrs
import pytest

from comparative_benchmark.analysis.machine.gpu_state import (
    UNKNOWN,
    Ends,
    GpuClocks,
    of_block,
    of_blocks,
    why_void,
)
from comparative_benchmark.results.outcome import contention_of, sound_and_void
from comparative_benchmark.results.record import Block
from comparative_benchmark.results.results_file import converted

QUIET = GpuClocks(index=0, sm_mhz=1980, held_back_by=(), used=True, foreign_pids=())
IDLE = GpuClocks(index=1, sm_mhz=345, held_back_by=("power cap",), used=False)


def ends(start=None, end=None, **both):
    return Ends(
        (IDLE, attrs.evolve(QUIET, **both, **start or {})),
        (IDLE, attrs.evolve(QUIET, **both, **end or {})),
    )


def answers(findings):
    return [answer for answer, _ in findings]


def test_a_quiet_block_is_clean_whatever_the_other_gpus_do():
    assert answers(of_block(ends())) == [False, False]


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (ends(start={"foreign_pids": (7,)}), "another process (pid 7) uses the GPU"),
        (ends(end={"foreign_pids": (7,)}), "another process (pid 7) uses the GPU"),
        (ends({"foreign_pids": (9,)}, {"foreign_pids": (7, 9)}),
         "other processes (pids 7, 9) use the GPU"),
        (ends({"foreign_pids": None}, {"foreign_pids": (7,)}),
         "another process (pid 7) uses the GPU"),
        (ends(end={"held_back_by": ("heat (software)", "power cap")}),
         "the GPU's clocks were held back: heat (software), power cap"),
    ],
)  # fmt: skip
def test_what_disturbs_a_block(found, text):
    assert [said for answer, said in of_block(found) if answer] == [text]


def test_a_slow_clock_before_the_block_is_that_of_an_idle_gpu():
    assert True not in answers(of_block(ends(start={"held_back_by": ("power cap",)})))


def test_what_the_driver_does_not_tell_is_not_known():
    assert answers(of_block(ends(start={"foreign_pids": None}))) == [None, False]
    assert answers(of_block(ends(end={"held_back_by": None}))) == [False, None]
    assert answers(of_block(ends(used=None))) == [None, None]
    assert answers(of_block(Ends((UNKNOWN,), (UNKNOWN,)))) == [None, None]
    assert answers(of_blocks([Ends((UNKNOWN,), (UNKNOWN,))])) == [None, None, None]


def test_a_block_without_a_gpu_has_nothing_to_be_judged():
    assert of_block(Ends((), ())) == of_blocks([Ends((), ())]) == of_blocks([]) == []


@pytest.mark.parametrize(("disturbed", "answer"), [(0, False), (5, False), (6, True)])
def test_a_series_survives_few_disturbed_blocks(disturbed, answer):
    series = [ends() for _ in range(100)]
    series[:disturbed] = [ends(end={"foreign_pids": (7,)})] * disturbed
    assert answers(of_blocks(series)) == [answer, False, False]
    series[:disturbed] = [ends(end={"held_back_by": ("power cap",)})] * disturbed
    assert answers(of_blocks(series)) == [False, answer, False]
    series[:disturbed] = [ends(held_back_by=None, foreign_pids=None, sm_mhz=None)] * disturbed
    assert answers(of_blocks(series)) == [None if answer else False] * 3


def test_a_series_says_how_often():
    series = [ends(), ends(end={"foreign_pids": (9,)}), ends(start={"foreign_pids": (7,)})]
    series += [ends(end={"held_back_by": ("power cap",)})]
    assert [said for answer, said in of_blocks(series) if answer] == [
        "other processes (pids 7, 9) use the GPU in 2 of 4 blocks",
        "the GPU's clocks were held back in 1 of 4 blocks: power cap",
    ]


@pytest.mark.parametrize(
    ("clocks", "fell"),
    [
        ((1980, 1980, 1965), False),
        ((1980, 1890, 1890), False),
        ((1980, 1200, 1980), True),
        ((1200, 1980, 1980), True),  # was throttled from the start
        ((None, 1980, 1200), True),
        ((1980,), False),
    ],
)
def test_a_clock_that_falls_under_load(clocks, fell):
    # An idle GPU has any clock at the start of a block.
    series = [ends({"sm_mhz": 345}, {"sm_mhz": mhz}) for mhz in clocks]
    findings = of_blocks(series)
    assert (findings[-1][0] is True) is fell
    if fell:
        text = f"the GPU's clock fell from 1980 to 1200 MHz in 1 of {len(clocks)} blocks"
        assert findings[-1] == (True, text)


@pytest.mark.parametrize("slow", [0, 3, 9])
def test_a_block_with_a_slow_clock_is_void_wherever_it_is(slow):
    series = [ends(end={"sm_mhz": 1200 if index == slow else 1980}) for index in range(10)]
    reasons = why_void(series)
    assert [index for index, why in enumerate(reasons) if why] == [slow]
    assert reasons[slow] == "the GPU's clock was 1200 MHz, but 1980 MHz in other blocks"


def test_what_voids_a_block_and_what_does_not():
    hot = ends(end={"held_back_by": ("heat (hardware)", "power cap")})
    capped = ends(end={"held_back_by": ("power cap",)})
    unknown = ends(sm_mhz=None, held_back_by=None)
    steps = ends(end={"sm_mhz": 1905})
    assert why_void([hot]) == ["the GPU was throttled: heat (hardware)"]
    assert why_void([ends(), capped, unknown, steps, Ends((), ())]) == [None] * 5
    assert why_void([]) == []


def block(found, **conditions):
    """A block as a worker reports it, quiet on its CPUs for long enough to be judged."""
    totals = {
        "own_cpu_ms": 1000.0,
        "wall_ms": 1000.0,
        "window_ms": 1000.0,
        "capacity_ms": 2000.0,
        "spare_ms": 0.0,
        "foreign_ms": 0.0,
        "steal_ms": 0.0,
        "error_ms": 5.0,
        "throttled_ms": 0.0,
        "thermal_throttles": 0,
        "involuntary_switches": 0,
    }
    plain = {
        "cpu_wall_ratio": 1.0,
        "foreign_cpu_share": 0.0,
        "steal_share": 0.0,
        "throttled_ms": 0.0,
        "load1": 1.0,
        "involuntary_switches": 0,
        "mean_mhz": None,
        "contended": False,
        "reasons": [],
        "totals": totals,
        "start_mhz": None,
        "end_mhz": None,
        "gpus_at_start": [attrs.asdict(gpu) for gpu in found.start],
        "gpus_at_end": [attrs.asdict(gpu) for gpu in found.end],
    }
    return {"latencies_ms": [1.0], "conditions": json.loads(json.dumps(plain | conditions))}


def judged(*blocks):
    """Returns the findings on blocks as files hold them."""
    return contention_of([converted(found, Block) for found in blocks])


def test_a_trial_is_judged_by_its_blocks_as_files_hold_them():
    assert judged(*[block(ends())] * 3).contended is False
    found = judged(block(ends()), block(ends(end={"foreign_pids": (7,)}), contended=True))
    assert found.contended is True
    assert found.contended_blocks == 1
    assert found.reasons == ("another process (pid 7) uses the GPU in 1 of 2 blocks",)
    found = judged(block(ends()), block(ends(end={"sm_mhz": 1000})))
    assert found.reasons == ("the GPU's clock fell from 1980 to 1000 MHz in 1 of 2 blocks",)


def test_void_blocks_are_set_apart_with_their_reason():
    blocks = [converted(block(ends(sm_mhz=mhz)), Block) for mhz in (1980, 1000, 1980)]
    sound, void = sound_and_void([*blocks, Block(latencies_ms=(1.0,))])
    assert (len(sound), [found.void for found in sound]) == (3, [None] * 3)
    assert [found.void for found in void] == [
        "the GPU's clock was 1000 MHz, but 1980 MHz in other blocks"
    ]


def test_files_of_before_the_users_of_a_gpu_were_told_are_still_read():
    old = block(ends())
    for name in ("gpus_at_start", "gpus_at_end"):
        old["conditions"][name] = [{"index": 0, "sm_mhz": 1980, "held_back_by": []}]
    assert judged(old).contended is None
    del old["conditions"]["gpus_at_start"], old["conditions"]["gpus_at_end"]
    assert judged(old).contended is False
