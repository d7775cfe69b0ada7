"""A compiler that autotunes, raced by the default rule: enough cold compiles for a verdict."""

from types import SimpleNamespace

import pytest

from comparative_benchmark.analysis.stats.planning import SamplingRule
from comparative_benchmark.engine import race as race_module
from comparative_benchmark.engine.settings import RunSettings
from openxla.benchmark.devices import HOST_CPU

ENOUGH_FOR_A_VERDICT = 3


@pytest.mark.parametrize(
    ("competitor", "cold_compiles"),
    [
        ("pt_inductor:inductor+max-autotune", ENOUGH_FOR_A_VERDICT),
        ("pt_inductor:inductor", 1),
        ("jax_xla:xla", 1),
    ],
)
def test_each_process_of_an_autotuned_competitor_is_cold(
    competitor, cold_compiles, make_trial, monkeypatch, tmp_path
):
    monkeypatch.setattr(race_module, "Participant", lambda *arguments: arguments[3])
    rule = SamplingRule()
    trial = make_trial(competitor=competitor)
    race = object.__new__(race_module.Race)
    race._settings = RunSettings(device=HOST_CPU, sampling=rule)
    race._trials, race._exports = [trial], {}
    race._artifacts = SimpleNamespace(directory=tmp_path)
    race._open_session = None
    race._log_file = lambda trial, replicate: None
    race.timeline = SimpleNamespace(process=lambda name, shown: None)
    plans = [race._participant(trial, index, tmp_path) for index in range(rule.min_processes)]
    assert sum(plan.cold for plan in plans) == cold_compiles
    assert len({plan.cache_dir for plan in plans}) == cold_compiles
