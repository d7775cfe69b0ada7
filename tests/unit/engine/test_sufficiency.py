"""Whether a trial has processes enough: judged on samples whose spread is known."""

import math

import attrs
import numpy as np
import pytest

from comparative_benchmark.analysis.stats.planning import SamplingRule
from comparative_benchmark.engine.race import _spent_s, pair_rounds, undecided, why_enough
from comparative_benchmark.results.outcome import ProcessRecord, TrialOutcome
from comparative_benchmark.results.record import Block

RULE = SamplingRule()
STEADY = [1, 1.0005, 0.9995] * 2


def outcome(process_medians, *, rounds=12, within=0.001, seed=0):
    """Processes of blocks of 5 samples around their medians."""
    random = np.random.default_rng(seed)
    processes = []
    for median in process_medians:
        logs = within * random.standard_normal((rounds, 5))
        blocks = [
            Block(round=index, latencies_ms=tuple((median * np.exp(block)).tolist()))
            for index, block in enumerate(logs)
        ]
        processes.append(ProcessRecord(blocks=blocks))
    return TrialOutcome(processes=processes)


def test_processes_that_agree_are_precise_after_three():
    assert why_enough(outcome([1, 1.0005, 0.9995]), None, RULE) == "precision"


def test_two_processes_are_never_enough():
    assert why_enough(outcome([1, 1]), None, RULE) is None


def test_a_spread_that_more_processes_can_overcome_asks_for_more():
    # 1 % between processes: t * sd / sqrt(K) is 2.5 % at K = 3 and 0.7 % at K = 10.
    assert why_enough(outcome([0.99, 1.0, 1.01]), None, RULE) is None


def test_a_spread_that_none_can_overcome_is_noise():
    assert why_enough(outcome([0.9, 1.0, 1.1]), None, RULE) == "noise"


def test_noise_is_no_reason_to_stop_where_there_is_nobody_to_pair_with():
    assert why_enough(outcome([0.9, 1.0, 1.1] * 2), None, RULE, competitors=1) is None
    assert why_enough(outcome(STEADY), None, RULE, competitors=1) == "precision"


def test_what_is_compared_later_has_six_processes():
    assert why_enough(outcome(STEADY[:5]), None, RULE, competitors=1) is None


def test_the_ratio_must_have_power_too():
    steady = outcome(STEADY)
    jumping = outcome([0.98, 1.0, 1.02] * 2, seed=1)
    assert why_enough(steady, outcome([1, 1, 1.0002] * 2, seed=2), RULE) == "precision"
    assert why_enough(steady, jumping, RULE) is None


@pytest.mark.parametrize("processes", [3, 4, 5])
def test_programs_that_are_nearly_alike_get_six_processes(processes):
    baseline = outcome([1, 1, 1.0002] * 2, seed=2)
    assert why_enough(outcome(STEADY[:processes]), baseline, RULE) is None
    fewer = attrs.evolve(RULE, max_processes=processes)
    assert why_enough(outcome(STEADY[:processes]), baseline, fewer) == "precision"


def test_what_the_machine_does_to_both_costs_no_power():
    drift = [1.0, 1.2, 0.9, 1.1, 1.0, 0.8]
    candidate = outcome([1.001 * value for value in drift])
    assert why_enough(candidate, outcome(drift, seed=3), RULE) == "noise"


def test_a_ratio_far_from_one_needs_fewer_processes():
    candidate, baseline = [2.0, 2.001, 1.999], outcome([0.99, 1.0, 1.01], seed=4)
    assert why_enough(outcome(candidate), baseline, RULE) == "precision"


def test_what_a_noisy_pilot_cannot_decide_is_said():
    noisy, baseline = outcome([0.97, 1.0, 1.03]), outcome([1, 1, 1.0002], seed=2)
    found = undecided(noisy, baseline, RULE)
    assert not found.can_decide
    assert found.processes == RULE.max_processes
    assert 0.03 < found.decidable < 0.06
    assert "can detect differences of 4." in str(found)
    assert f"3.0 % would take {found.needed} processes" in str(found)
    # Slow processes use the budget up sooner.
    noisy.wall_s = 3 * 10.0
    assert undecided(noisy, baseline, RULE).processes == 4
    assert undecided(noisy, baseline, RULE).decidable > found.decidable


def test_a_quiet_pilot_decides_and_a_distant_one_needs_no_outlook():
    baseline = outcome([1, 1, 1.0002], seed=2)
    assert undecided(outcome(STEADY[:3]), baseline, RULE).can_decide
    assert undecided(outcome([1.97, 2.0, 2.03]), baseline, RULE) is None
    assert undecided(outcome([1]), baseline, RULE) is None


def test_unusable_samples_are_not_enough():
    bad = outcome([1, 1, 1])
    bad.processes[1].blocks[0] = Block(round=0, latencies_ms=(math.nan, 1.0))
    assert why_enough(bad, None, RULE) is None
    assert why_enough(outcome([1, 1, 1]), bad, RULE) is None


def test_only_rounds_that_both_have_are_paired():
    candidate = [Block(round=1, latencies_ms=(2, 4, 3)), Block(round=2, latencies_ms=(5,))]
    baseline = [Block(round=0, latencies_ms=(9,)), Block(round=1, latencies_ms=(1, 2))]
    assert pair_rounds(candidate, baseline) == [(3.0, 1.5)]


def test_a_replicate_that_an_interruption_set_apart_is_left_out_of_the_ratios():
    candidate, baseline = outcome([*STEADY, 1]), outcome([*STEADY, 1], seed=2)
    assert why_enough(candidate, baseline, RULE) == "precision"
    # Their ratio is meaningless because the machine differs, so it must not count as spread.
    apart = [
        attrs.evolve(block, round=block.round + 100) for block in candidate.processes[-1].blocks
    ]
    candidate.processes[-1].blocks = apart
    assert pair_rounds(apart, baseline.processes[-1].blocks) == []
    assert why_enough(candidate, baseline, RULE) == "precision"


@pytest.mark.parametrize(("ratio", "enough"), [(1.2, False), (1.3, True)])
def test_three_processes_are_enough_beyond_a_quarter_alone(ratio, enough):
    candidate = outcome([ratio, ratio, ratio * 1.0002], seed=1)
    baseline = outcome([1, 1, 1.0002], seed=2)
    assert bool(why_enough(candidate, baseline, RULE)) == enough


def test_start_up_counts_towards_the_budget_from_six_processes_on():
    found = outcome([1.0] * 5)
    found.wall_s = 500.0
    assert _spent_s(found) == found.measured_s < 1.0
    found.processes.append(found.processes[0])
    assert _spent_s(found) == 500.0
