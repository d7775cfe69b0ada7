"""What an iteration costs, on its way from a reference to the share of the roof."""

import sys
import types

import pytest

from comparative_benchmark import tables
from comparative_benchmark.doctor.ceilings import Ceilings, Copy, Gemm
from comparative_benchmark.harness import executor
from comparative_benchmark.results.records import to_record
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
    found = executor._cost(reference(cost=lambda model, inputs: (model, inputs)), "model", [1])
    assert found == ("model", [1])


def test_a_reference_without_a_counter_says_so(reference):
    found = executor._cost(reference(), "model", [])
    assert (found.flops, found.bytes) == (None, None)
    assert found.flops_source == found.bytes_source == "made_up_reference counts nothing"


def test_a_model_that_can_not_be_counted_says_why(reference):
    def cost(model, inputs):
        raise ValueError("a `while` loop")

    found = executor._cost(reference(cost=cost), "model", [])
    assert found.flops is None
    assert found.flops_source == "not countable: ValueError: a `while` loop"


@pytest.fixture
def shares(monkeypatch, make_trial, finished):
    """Shares of the roof of two records of one workload, in order."""
    monkeypatch.setattr(tables, "load_ceilings", lambda: ROOF)

    def of(*changes):
        records = []
        for (framework, competitor), change in zip(
            (("PT", "pt_inductor:eager"), ("JAX", "jax_xla:xla")), changes
        ):
            trial = make_trial(NAME.format(framework), competitor)
            record = to_record(trial, finished(), run_id="1")
            metrics = tables.metrics_of(record)
            metrics["median_latency_ms"] = 20.0
            metrics.pop("workload_cost", None)
            for key, value in change.items():
                metrics[key] = metrics.get(key, {}) | value
            records.append(record)
        found = tables._roofs(records)
        return [found.get(tables._identity(record["definition"])) for record in records]

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
