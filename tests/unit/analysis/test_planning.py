"""How many processes an effect takes, and what a machine can decide."""

import math

import attrs
import numpy as np
import pytest
from scipy import stats

from comparative_benchmark.analysis.stats.analysis import SampleError, ratio_quantile
from comparative_benchmark.analysis.stats.planning import (
    CLOSE_PROCESSES,
    SamplingRule,
    decidable_effect,
    outlook,
    processes_needed,
    ratio_sd,
    reach,
    replicate_variances,
    sd_of_noise_floor,
    widest_sd_for_precision,
)

RULE = SamplingRule()


@pytest.mark.parametrize("processes", [3, 4, 6, 10, 40])
def test_a_decidable_effect_is_found_in_at_least_90_percent(processes):
    # Exact power, noncentral t.
    critical = ratio_quantile(0.98, processes - 1)
    noncentrality = reach(processes) * math.sqrt(processes)
    power = stats.nct.sf(critical, processes - 1, noncentrality)
    assert 0.9 <= power <= 0.95


def test_more_processes_decide_smaller_effects():
    effects = [decidable_effect(0.02, processes) for processes in range(2, 30)]
    assert effects == sorted(effects, reverse=True)
    assert decidable_effect(0.0, 3) == 0
    assert decidable_effect(1e300, 3) > 1e300


def test_the_number_of_processes_is_the_smallest_that_decides():
    for sd in (0.001, 0.01, 0.017, 0.03):
        needed = processes_needed(sd)
        assert decidable_effect(sd, needed) <= 0.03
        assert needed == 3 or decidable_effect(sd, needed - 1) > 0.03
    assert processes_needed(0.0) == 3
    assert processes_needed(0.017, effect=0.05) < processes_needed(0.017)
    assert processes_needed(0.017, level=0.95) < processes_needed(0.017)


@pytest.mark.parametrize("sd", [math.nan, math.inf])
def test_a_pilot_without_a_spread_plans_nothing(sd):
    with pytest.raises(ValueError, match="finite"):
        processes_needed(sd)
    with pytest.raises(ValueError, match="finite"):
        decidable_effect(sd, 5)


def test_a_pilot_tells_how_replicates_scatter():
    random = np.random.default_rng(0)
    paired = []
    for effect in 0.02 * random.standard_normal(200):
        logs = effect + 0.05 * random.standard_normal(20)
        paired.append([(math.exp(value), 1.0) for value in logs])
    medians, variances = replicate_variances(paired)
    inner = math.sqrt(math.pi / 2 / 20) * 0.05
    assert math.sqrt(variances.mean()) == pytest.approx(inner, rel=0.1)
    assert ratio_sd(medians, variances) == pytest.approx(math.hypot(0.02, inner), rel=0.15)
    # Replicates that agree by chance are not believed.
    assert ratio_sd(np.zeros(200), variances) == pytest.approx(inner, rel=0.1)
    with pytest.raises(SampleError, match="two replicates"):
        replicate_variances(paired[:1])


def test_a_quiet_machine_decides_the_effect():
    found = outlook(0.01, RULE)
    assert found.can_decide
    assert found.processes == RULE.max_processes
    assert str(found) == (
        "on this machine, 10 processes per competitor can detect differences of 1.5 % or more"
    )
    assert outlook(0.0, RULE).needed == CLOSE_PROCESSES


def test_a_noisy_machine_says_what_it_cannot_decide():
    found = outlook(0.04, RULE)
    assert not found.can_decide
    assert processes_needed(0.04) == found.needed > 10
    assert str(found) == (
        "on this machine, 10 processes per competitor can detect differences of 6.2 % or more; "
        f"detecting 3.0 % would take {found.needed} processes per competitor"
    )


@pytest.mark.parametrize(("process_s", "processes"), [(31.0, 3), (8.0, 4), (7.4, 5), (0.1, 10)])
def test_slow_processes_leave_time_for_few(process_s, processes):
    # As in a race: another one starts within 30 s, and there are at least 3.
    assert outlook(0.01, RULE, process_s=process_s).processes == processes


@pytest.mark.parametrize(
    ("process_s", "measured_s", "processes"),
    [(40.0, 1.0, 6), (40.0, 8.0, 4), (40.0, 40.0, 3), (2.0, 1.0, 10)],
)
def test_start_up_does_not_count_for_the_first_processes(process_s, measured_s, processes):
    found = outlook(0.01, RULE, process_s=process_s, measured_s=measured_s)
    assert found.processes == processes


def test_a_run_without_a_choice_of_processes_is_as_good_as_they_are():
    rule = attrs.evolve(RULE, min_processes=20, max_processes=20)
    assert outlook(0.02, rule).processes == 20


def test_a_noise_floor_tells_the_spread_of_processes():
    random = np.random.default_rng(1)
    runs = 0.012 * random.standard_normal((4000, 2, 5))
    differences = np.abs(np.diff(runs.mean(axis=2), axis=1))
    sd = sd_of_noise_floor(math.expm1(float(np.median(differences))), 5)
    assert sd == pytest.approx(math.sqrt(2) * 0.012, rel=0.05)


@pytest.mark.parametrize(("most", "quantile"), [(3, 4.3027), (5, 2.7764), (10, 2.2622)])
def test_the_spread_that_so_many_processes_bring_to_a_precision(most, quantile):
    # Quantiles of Student's t from tables.
    expected = 0.01 * math.sqrt(most) / quantile
    assert widest_sd_for_precision(0.01, most) == pytest.approx(expected, rel=1e-4)
