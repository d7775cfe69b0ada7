"""Judgement of planted faults, and of pairs whose ratio is known."""

import json
import os

import attrs
import pytest
from nvml_double import Gpu, Nvml
from results_support import completed

from comparative_benchmark.analysis.machine import conditions, nvml
from comparative_benchmark.results.record import Block, Contention, Levels, Process
from gpu_check import faults, races
from gpu_check.faults import FAULTS, GOOD_CASE, model_name
from gpu_check.races import EQUAL, SLOWER, Verdict
from openxla.benchmark.comparative_suite import catalog
from openxla.benchmark.workloads import workload_of

pytestmark = pytest.mark.slow


def _records(**changed):
    statuses = {name: fault.status for name, fault in FAULTS.items()} | changed
    good = GOOD_CASE.split("/")[1]
    models = {good: statuses.pop("good", "ok")}
    models |= {model_name(fault): status for fault, status in statuses.items() if status}
    return _results(
        {
            "definition": {"model": model, "benchmark_name": model},
            "status": status,
            "phase": "first_run",
            "reason": "so",
        }
        for model, status in models.items()
    )


def _results(records):
    return completed({"benchmarks": list(records)}).benchmarks


def test_faults_that_end_as_they_must_are_right():
    found = faults.judge(_records())
    assert [item.fault for item in found] == ["good", *FAULTS]
    assert all(item.right for item in found)


@pytest.mark.parametrize("fault", [*FAULTS, "good"])
def test_a_fault_that_ends_otherwise_is_not_right(fault):
    [wrong] = [item for item in faults.judge(_records(**{fault: "unsteady"})) if not item.right]
    assert (wrong.fault, wrong.status, wrong.reason) == (fault, "unsteady", "so")


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_without_a_result_is_not_right(fault):
    [wrong] = [item for item in faults.judge(_records(**{fault: None})) if not item.right]
    assert (wrong.fault, wrong.status) == (fault, "lacking")


@pytest.mark.parametrize(
    ("status", "contention", "right"),
    [
        ("ok", {"contended": True, "reasons": ["another process (pid 7) uses the GPU"]}, True),
        ("ok", {"contended": None, "contended_blocks": 3, "reasons": []}, True),
        ("ok", {"contended": False, "contended_blocks": 0, "reasons": []}, False),
        ("ok", {}, False),
        ("crashed", {"contended": True, "reasons": []}, False),
    ],
)
def test_a_busy_neighbour_must_be_noticed_and_cost_nothing(status, contention, right):
    record = {"status": status, "metrics": {"framework_level": {"contention": contention}}}
    found = faults.judge_foreign(_results([record]))
    assert found.right is right
    assert not faults.judge_foreign([]).right


@pytest.mark.parametrize("pids", [None, (os.getpid(),)])
def test_a_neighbour_that_the_driver_does_not_report_may_go_unnoticed(monkeypatch, pids):
    monkeypatch.setattr(nvml, "library", lambda: Nvml(Gpu(pids=pids)))
    before, after = conditions.take(gpu=True), conditions.take(gpu=True)
    found = conditions.between(before, after, own_cpu_ms=1.0, wall_ms=1.0, threads=1)
    [result] = _results([{"status": "ok"}])
    process = Process(blocks=(Block(latencies_ms=(1.0,), conditions=found),))
    measured = attrs.evolve(
        result.measured, processes=(process,), contention=Contention(contended=None)
    )
    result = attrs.evolve(result, metrics=Levels(framework_level=measured))
    assert faults.judge_foreign([result]).right is (pids is None)


def test_planted_models_share_the_workload_of_the_good_one():
    [good] = catalog.select(catalog.all_benchmarks(), name=GOOD_CASE)
    assert {workload_of(case).digest for case in faults.ALL_BENCHMARKS} == {
        workload_of(good).digest
    }


def test_large_models_are_compared_across_frameworks():
    workloads = {}
    for case in races.ALL_BENCHMARKS:
        framework = case.model.model_impl.framework_type.value
        workloads.setdefault(workload_of(case).digest, set()).add(framework)
    assert len(workloads) == 3 * 2 * 3  # models, batches, data types
    assert set(map(frozenset, workloads.values())) == {frozenset({"pytorch", "jax"})}


def _verdict(kind, verdict):
    return Verdict(kind=kind, verdict=verdict, reason="", ratio=1.0, half_width=0.01)


@pytest.mark.parametrize(
    ("kind", "verdict", "right"),
    [
        (EQUAL, "same", True),
        (EQUAL, "unclear", True),
        (EQUAL, "faster", False),
        (EQUAL, "slower", False),
        (EQUAL, "incomparable", None),
        (SLOWER, "slower", True),
        (SLOWER, "faster", False),
        (SLOWER, "unclear", None),
        (SLOWER, "same", None),
    ],
)
def test_which_verdicts_are_right(kind, verdict, right):
    assert _verdict(kind, verdict).right is right


def test_pairs_are_counted_by_kind():
    found = [_verdict(EQUAL, "same"), _verdict(EQUAL, "slower"), _verdict(SLOWER, "unclear")]
    found.append(_verdict(SLOWER, "incomparable"))
    counted = races.summary(found, 10)
    assert counted["kinds"] == {
        EQUAL: {"pairs": 2, "wrong": 1, "right": 1, "incomparable": 0},
        SLOWER: {"pairs": 2, "wrong": 0, "right": 0, "incomparable": 1},
    }
    assert json.loads(json.dumps(counted))["verdicts"][0] == attrs.asdict(found[0])
