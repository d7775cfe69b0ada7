"""A program that changes its speed while it is measured is unsteady; a machine that does is not."""

import math

import numpy as np
import pytest

from comparative_benchmark.analysis.stats.steadiness import change, why_not_steady
from comparative_benchmark.engine.recording import judge_rounds
from comparative_benchmark.results.outcome import ProcessRecord, TrialOutcome
from comparative_benchmark.results.record import Block, Status


def series(seed, *, processes=3, rounds=10, noise=0.01, step=0.0, shared=None):
    """Logarithms of blocks by round, each process at a different level, with a step at half."""
    random = np.random.default_rng(seed)
    values = noise * random.standard_normal((processes, rounds))
    values += 0.02 * random.standard_normal((processes, 1)) + 1.0
    values[:, rounds // 2 :] += step
    if shared is not None:
        values += shared
    return [dict(enumerate(map(float, process))) for process in values]


def test_a_step_is_found_and_told():
    assert why_not_steady(series(1)) is None
    told = why_not_steady(series(1, step=math.log(1.05)))
    assert told.startswith("the last 50% of the rounds differ by +")
    assert 3.5 < float(told.partition("+")[2].partition("%")[0]) < 6.5
    # A clock that rises is as bad.
    assert "differ by -" in why_not_steady(series(1, step=math.log(0.95)))


def test_a_trend_is_found():
    slope = np.linspace(0, 0.12, 10)
    assert why_not_steady(series(2, shared=slope)) is not None


@pytest.mark.parametrize("step", [0.0, 0.05])
def test_what_the_machine_does_to_all_is_nobodys(step):
    machine = 0.1 * (np.arange(10) >= 5)
    own, rivals = series(3, shared=machine, step=step), series(4, shared=machine)
    beside = [[process] for process in rivals]
    told = why_not_steady(own, beside)
    assert (told is not None) == bool(step)
    # The rival of one that has changed has not.
    assert why_not_steady(rivals, [[process] for process in own]) is None or not step


def test_a_rivals_step_is_not_ones_own():
    own, rivals = series(5), series(6, step=0.08)
    assert why_not_steady(own, [[process] for process in rivals]) is None
    assert why_not_steady(rivals, [[process] for process in own]) is not None


def test_one_process_alone_is_part_of_the_spread_between_them():
    processes = series(7)
    processes[1] = series(7, step=0.05)[1]
    assert why_not_steady(processes) is None


def test_few_rounds_say_nothing():
    assert why_not_steady(series(8, rounds=7, step=0.5)) is None
    assert change([]) is None


def test_neighbouring_rounds_that_resemble_each_other_make_a_change_less_certain():
    wave = [math.sin(index / 2) for index in range(10)]
    noise = [math.sin(index * 7.3) for index in range(10)]
    plain, waving = change([noise] * 3), change([wave] * 3)
    assert abs(waving.standard_errors / waving.log_ratio) < abs(
        plain.standard_errors / plain.log_ratio
    )


def test_a_constant_series_is_steady_and_a_perfect_step_is_not():
    assert why_not_steady([dict.fromkeys(range(10), 1.0)] * 3) is None
    assert why_not_steady([{r: 1.0 + 0.1 * (r >= 5) for r in range(10)}] * 3) is not None


def _outcome(processes):
    outcome = TrialOutcome()
    for rounds in processes:
        blocks = [
            Block(latencies_ms=(math.exp(value),) * 3, round=index)
            for index, value in rounds.items()
        ]
        outcome.add(ProcessRecord(blocks=blocks))
    return outcome


def test_a_race_ends_who_did_not_keep_its_speed():
    outcomes = {
        ("case", "tires", "cpu"): _outcome(series(9, step=0.06)),
        ("case", "steady", "cpu"): _outcome(series(10)),
        ("case", "failed", "cpu"): TrialOutcome(processes=[ProcessRecord(status=Status.FAILED)]),
    }
    judge_rounds(outcomes, interleaved=True)
    found = {key[1]: outcome.status for key, outcome in outcomes.items()}
    assert found == {"tires": Status.UNSTEADY, "steady": Status.OK, "failed": Status.FAILED}
    ended = outcomes["case", "tires", "cpu"].ended_by
    assert ended.phase == "measure"
    assert "relative to the other competitors" in ended.reason


def test_the_share_of_a_change_is_that_of_the_rounds_that_were_compared():
    rounds = [float(number) for number in range(10)]
    assert change([rounds], 0.125).split == 0.3
    assert change([rounds] * 2, 0.5).split == 0.5
