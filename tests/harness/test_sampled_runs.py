"""Processes, caches, CPUs and budgets of `cbs run`. No test here depends on a measured value."""

import os
from types import SimpleNamespace

import pytest

from comparative_benchmark.analysis.machine import other_processes
from comparative_benchmark.engine.race import Race

SUITE = ("--suite", "cbs_test_plugin.suite")
TOYS = (*SUITE, "--backend", "test_numpy")
ONE = (*TOYS, "-name", "models/TOY_BUSY/.+")
# The shortest rounds. On a busy machine a trial may be unsteady: these tests accept that.
SHORT = ("--precision", "0.5")
SAMPLED = {"ok", "unsteady"}


def _metrics(run, model):
    [record] = [r for r in run.document["benchmarks"] if r["definition"]["model"] == model]
    return record["metrics"]["framework_level"]


def test_one_competitor_alone_is_no_race_but_is_sampled_alike(cbs_run):
    run = cbs_run(*TOYS, "-name", "models/TOY_NONE/.+", "--processes", "2", *SHORT, unsteady=1)
    metrics = _metrics(run, "TOY_NONE")
    assert 0 <= metrics["race"].pop("seed") < 2**31
    assert metrics["race"] == {
        "interleaved": False,
        "id": None,
        "decidable": None,
        "shared_workers": False,
    }
    assert len(metrics["processes"]) == 2


def test_sampling_works_without_processes_too(cbs_run):
    run = cbs_run(
        *(*TOYS, "-name", "models/TOY_(NONE|BUSY)/.+", "--processes", "2", "--run-in-process"),
        *SHORT,
        unsteady=2,
    )
    assert set(run.statuses.values()) <= SAMPLED, run.err
    metrics = _metrics(run, "TOY_BUSY")
    assert metrics["race"]["interleaved"] is False
    assert len(metrics["processes"]) == 2


def test_competitors_that_do_not_fit_into_memory_together_are_told_apart(monkeypatch):
    said = []
    race = object.__new__(Race)
    race._settings = SimpleNamespace(in_process=False)
    race._interleaved, race._say = True, said.append
    group = [SimpleNamespace(resident_bytes=lambda: 3 << 30)]
    monkeypatch.setattr(other_processes, "default_limit_bytes", lambda: 4 << 30)
    assert race._fits(group, None)
    assert race._interleaved
    monkeypatch.setattr(other_processes, "default_limit_bytes", lambda: 3 << 30)
    assert not race._fits(group, None)
    assert not race._interleaved
    assert said == ["the competitors do not all fit into memory, so some are not interleaved"]
    assert not race._fits(group, None)
    assert len(said) == 1


def test_a_compiler_that_chooses_by_measuring_compiles_again_in_each_process(cbs_run):
    run = cbs_run(
        *(*SUITE, "--backend", "test_numpy,test_numpy:direct+gambles"),
        *("-name", "models/TOY_BUSY/.+", "--processes", "2", *SHORT),
        unsteady=2,
    )
    assert set(run.statuses.values()) <= SAMPLED, run.err
    by_compiler = {
        record["definition"]["compiler"]: record["metrics"]["framework_level"]
        for record in run.document["benchmarks"]
    }
    usual, gambling = by_compiler["direct"], by_compiler["direct+gambles"]
    assert [len(found["compile"]["cold_ms"]) for found in (usual, gambling)] == [1, 2]
    assert [found["autotuning_enabled"] for found in (usual, gambling)] == [False, True]
    assert [process["cache_hits"] for process in gambling["processes"]] == [0, 0]


def test_a_cold_compile_that_found_a_cache_is_refused(cbs_run):
    run = cbs_run(
        *(*SUITE, "--backend", "test_numpy,test_numpy:direct+has-a-cache-elsewhere"),
        *("-name", "models/TOY_BUSY/.+", "-w", "1", "-iter", "3"),
    )
    assert run.code == 1
    right, wrong = (record["metrics"]["framework_level"] for record in run.document["benchmarks"])
    assert [record["status"] for record in run.document["benchmarks"]] == ["ok", "failed"]
    assert right["median_latency_ms"] > 0
    failed = run.document["benchmarks"][1]
    assert failed["phase"] == "compile"
    assert "not a cold compile" in failed["reason"]
    assert wrong.get("median_latency_ms") is None


def test_compile_only_measures_cold_and_warm_in_turns(cbs_run):
    run = cbs_run(*ONE, "--compile-only", "--processes", "2")
    assert run.code == 0, run.err
    [record] = run.document["benchmarks"]
    metrics = record["metrics"]["framework_level"]
    assert record["status"] == "ok"
    assert metrics["stop_reason"] == "compile_only"
    assert len(metrics["compile"]["cold_ms"]) == len(metrics["compile"]["warm_ms"]) == 2
    assert [process["cold"] for process in metrics["compile"]["processes"]] == [True, False] * 2
    assert "latencies_ms" not in metrics
    assert metrics["verification"]["passed"] is True
    assert "cold s" in run.out


@pytest.mark.parametrize(
    "excluded", [("-w", "1"), ("-iter", "1"), ("--run-in-process",), ("--profile",)]
)
def test_compile_only_excludes_what_measures(cbs_run, excluded):
    run = cbs_run(*ONE, "--compile-only", *excluded)
    assert run.code == 1
    assert "--compile-only cannot be combined with" in run.err


def test_workers_are_pinned(cbs_run):
    cpu = max(os.sched_getaffinity(0))
    run = cbs_run(*ONE, "-w", "0", "-iter", "1", "--cpus", str(cpu))
    assert run.code == 0, run.err
    [started] = run.document["runs"]
    host = started["execution_environment"]["host"]
    assert host["pinned_cpus"] == [cpu]
    assert host["threads"] == 1
    [record] = run.document["benchmarks"]
    notes = record["metrics"]["framework_level"]["program"]["notes"]
    assert notes["cpus"] == [cpu]


def test_cpus_that_are_not_there_are_refused(cbs_run):
    run = cbs_run(*ONE, "--cpus", "4000")
    assert run.code == 1
    assert "this process cannot use 4000" in run.err


def test_a_budget_of_each_trial_leaves_the_pilot_and_nothing_else(cbs_run):
    run = cbs_run(*ONE, "--trial-budget", "0.001", unsteady=1)
    [record] = run.document["benchmarks"]
    metrics = record["metrics"]["framework_level"]
    assert record["status"] in SAMPLED, record["reason"]
    assert len(metrics["processes"]) == 3
    # An unsteady trial has no reason to stop.
    reasons = ("precision", "noise", "budget") if record["status"] == "ok" else (None,)
    assert metrics["stop_reason"] in reasons
    assert all(p["stop_reason"] for p in metrics["processes"])
    assert all(0 < p["timer_ns"] < 1e6 for p in metrics["processes"])
