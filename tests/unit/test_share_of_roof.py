"""What an iteration costs, on its way from a reference to the share of the roof."""

import sys
import types

import pytest

from comparative_benchmark import roofs
from comparative_benchmark.doctor.ceilings import Ceilings, CeilingsError, Copy, Gemm
from comparative_benchmark.harness import contributed_model
from comparative_benchmark.results.records import metrics_of, to_record
from openxla.benchmark.artifacts.workload_cost import WorkloadCost

# 100 GFLOP/s and 10 GB/s.
ROOF = Ceilings(
    cpu_model="CPU",
    threads=2,
    date="2026-01-01T00:00:00+00:00",
    gemms=(Gemm(data_type="fp32", library="torch", version="1", size=1024, gflops=100.0),),
    copies=(Copy(threads=2, buffer_bytes=1, version="1", gb_per_s=10.0),),
)
NAME = "models/BERT_TINY_FP32_{}_32XI32_BATCH1/inputs/INPUT_DATA_MODEL_DEFAULT"


@pytest.fixture
def reference(monkeypatch):
    """Makes a module that holds a reference, and what else is given."""

    def make(**members):
        module = types.ModuleType("made_up_reference")
        vars(module).update(members)
        monkeypatch.setitem(sys.modules, module.__name__, module)
        return "made_up_reference:compute"

    return make


def test_the_counter_beside_a_reference_is_asked(reference):
    found = contributed_model.count_cost(
        reference(cost=lambda model, inputs: (model, inputs)), "model", [1]
    )
    assert found == ("model", [1])


def test_a_reference_without_a_counter_says_so(reference):
    found = contributed_model.count_cost(reference(), "model", [])
    assert (found.flops, found.bytes) == (None, None)
    assert found.flops_source == found.bytes_source == "made_up_reference counts nothing"


def test_a_model_that_can_not_be_counted_says_why(reference):
    def cost(model, inputs):
        raise ValueError("a `while` loop")

    found = contributed_model.count_cost(reference(cost=cost), "model", [])
    assert found.flops is None
    assert found.flops_source == "not countable: ValueError: a `while` loop"


@pytest.fixture
def shares(make_trial, finished):
    """Shares of the roof of two records of one workload, in order."""

    def of(*changes):
        records = []
        for (framework, competitor), change in zip(
            (("PT", "pt_inductor:eager"), ("JAX", "jax_xla:xla")), changes
        ):
            trial = make_trial(NAME.format(framework), competitor)
            record = to_record(trial, finished(), run_id="1")
            metrics = metrics_of(record)
            metrics["median_latency_ms"] = 20.0
            metrics.pop("workload_cost", None)
            for key, value in change.items():
                metrics[key] = metrics.get(key, {}) | value
            records.append(record)
        return roofs.shares_of_roof(records, ROOF)

    return of


COUNTED = {"workload_cost": {"flops": 10**9, "bytes": 10**6}}  # 10 ms of 20
UNKNOWN = {"workload_cost": {"flops": None, "bytes": None, "flops_source": "not countable"}}
OWN = {"program": {"flops": 4e8, "bytes_accessed": 1e6}}  # 4 ms of 20


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (COUNTED, COUNTED, ["50%", "50%"]),
        (COUNTED, COUNTED | OWN, ["50%", "50%"]),
        ({}, COUNTED, ["50%", "50%"]),
        # A program's own count is second to that of the model, whichever comes first.
        (OWN, COUNTED, ["50%", "50%"]),
        ({}, OWN, ["20%", "20%"]),
        (UNKNOWN, UNKNOWN | OWN, ["20%", "20%"]),
        ({}, {"program": {"flops": 1e6, "bytes_accessed": 1e5}}, ["0.1%", "0.1%"]),
        (UNKNOWN, UNKNOWN, [None, None]),
        ({}, {}, [None, None]),
    ],
)
def test_the_share_of_the_roof_takes_the_models_own_cost(shares, first, second, expected):
    assert shares(first, second) == expected


def test_memory_bound_work_without_products_has_a_roof(shares):
    moved = {"workload_cost": {"flops": 0, "bytes": 10**8}}  # 10 ms of 20
    assert shares(moved, {}) == ["50%", "50%"]


@pytest.mark.parametrize("fields", [{"flops": -1}, {"bytes": 1.0}, {"flops_source": 3}])
def test_a_cost_is_whole_numbers_and_texts(fields):
    with pytest.raises((ValueError, TypeError)):
        WorkloadCost(**fields)


def test_a_result_of_another_device_has_no_share(make_trial, finished):
    record = to_record(make_trial(NAME.format("PT"), "pt_inductor:eager"), finished(), run_id="1")
    metrics_of(record).update({"median_latency_ms": 20.0, **COUNTED})
    assert roofs.shares_of_roof([record], ROOF) == ["50%"]
    record["definition"]["device"] = "host-gpu"
    assert roofs.shares_of_roof([record], ROOF) == [None]


@pytest.fixture
def counted(make_trial, finished):
    record = to_record(make_trial(NAME.format("PT"), "pt_inductor:eager"), finished(), run_id="1")
    metrics_of(record).update({"median_latency_ms": 20.0, **COUNTED})
    return [record]


def _ceilings(records, monkeypatch, *, measure, found=None, result=ROOF):
    said, saved = [], []
    monkeypatch.setattr(roofs, "load_ceilings", lambda threads: found)
    monkeypatch.setattr(roofs, "save_ceilings", saved.append)

    def measured(threads):
        if isinstance(result, Exception):
            raise result
        return result

    monkeypatch.setattr(roofs, "measure_ceilings", measured)
    answer = roofs.ceilings_for(records, 2, measure=measure, say=said.append)
    return answer, said, saved


def test_ceilings_are_measured_once_where_they_are_of_use(counted, monkeypatch):
    answer, said, saved = _ceilings(counted, monkeypatch, measure=True)
    assert (answer, saved) == (ROOF, [ROOF])
    assert said
    assert _ceilings(counted, monkeypatch, measure=True, found=ROOF) == (ROOF, [], [])


def test_a_first_look_is_told_how_to_measure_them(counted, monkeypatch):
    answer, (said,), saved = _ceilings(counted, monkeypatch, measure=False)
    assert (answer, saved) == (None, [])
    assert "cbs doctor --ceilings" in said


def test_nobody_waits_for_ceilings_of_no_use(counted, monkeypatch):
    metrics_of(counted[0]).pop("workload_cost")
    assert _ceilings(counted, monkeypatch, measure=True) == (None, [], [])


def test_ceilings_that_can_not_be_measured_cost_only_the_share(counted, monkeypatch):
    failure = CeilingsError("no product")
    answer, said, saved = _ceilings(counted, monkeypatch, measure=True, result=failure)
    assert (answer, saved) == (None, [])
    assert said[-1] == "no share of the roof: no product"
