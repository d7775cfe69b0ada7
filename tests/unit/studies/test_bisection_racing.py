"""Samples of a bisection's races, and differences between two environments."""

from pathlib import Path

import pytest

from comparative_benchmark.analysis.stats.planning import CompileOnly, FixedCounts, SamplingRule
from comparative_benchmark.api.case_selection import Selection
from comparative_benchmark.engine.settings import Environment, RunSettings
from comparative_benchmark.studies.bisection.racing import Metric, RaceOracle, other_packages
from comparative_benchmark.studies.bisection.search import Focus
from openxla.benchmark import devices


def _environment(version="3.11.9", **packages):
    return Environment(
        name="x",
        python="python",
        python_version=version,
        packages=tuple({"name": name, "version": v} for name, v in packages.items()),
        missing=frozenset(),
    )


def test_what_differs_besides_what_is_bisected_is_reported():
    good = _environment(jax="1", ml_dtypes="0.5", numpy="2.4", old="1")
    candidate = _environment(version="3.12.1", jax="2", ml_dtypes="0.6", numpy="2.4", new="3")
    assert other_packages(good, candidate, frozenset({"jax"})) == [
        "ml-dtypes 0.5 -> 0.6",
        "new absent -> 3",
        "old 1 -> absent",
        "python 3.11.9 -> 3.12.1",
    ]
    assert other_packages(good, good, frozenset()) == []


def _sampling(metric, focus, attempt, rule=None):
    oracle = RaceOracle(
        selection=Selection(cases=[]),
        competitors=[],
        metric=metric,
        settings=RunSettings(device=devices.HOST_CPU, sampling=rule or SamplingRule(seed=5)),
        pool=None,
        recipe=None,
        folder=Path(),
        observer=None,
    )
    return oracle._sampling(focus, attempt)


def test_each_attempt_takes_twice_the_processes_in_another_order():
    first, second = (_sampling(Metric.LATENCY, Focus(), attempt) for attempt in (0, 1))
    assert (first.min_processes, first.max_processes, first.trial_budget_s) == (3, 10, 30)
    assert (second.min_processes, second.max_processes, second.trial_budget_s) == (6, 20, 60)
    assert first.seed != second.seed


@pytest.mark.parametrize(("threshold", "effect"), [(None, 0.03), (0.04, 0.04), (0.001, 0.01)])
def test_a_race_is_as_fine_as_the_change_that_is_sought(threshold, effect):
    assert _sampling(Metric.LATENCY, Focus(threshold=threshold), 0).effect == effect


def test_what_needs_no_latency_samples_none():
    assert _sampling(Metric.COMPILE, Focus(), 1) == CompileOnly(pairs=6, seed=1)
    assert isinstance(_sampling(Metric.OUTPUT, Focus(), 0), FixedCounts)
    assert isinstance(_sampling(Metric.FAILURE, Focus(), 0), FixedCounts)
    assert isinstance(_sampling(Metric.MEMORY, Focus(), 0), SamplingRule)
