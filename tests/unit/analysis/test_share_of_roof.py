"""The cost of an iteration, from a reference to the share of the roof."""

import copy
import json
import sys
import types

import attrs
import pytest
from results_support import decoded, plain_document

from comparative_benchmark.analysis.roofline import ceilings
from comparative_benchmark.analysis.roofline.ceilings import (
    Answer,
    Ceilings,
    CeilingsError,
    Copy,
    Gemm,
)
from comparative_benchmark.engine.recording import to_result
from comparative_benchmark.engine.worker import preparing
from comparative_benchmark.results.comparing import roofs
from comparative_benchmark.results.record import Result
from comparative_benchmark.results.results_file import converted, encode
from openxla.benchmark.artifacts.workload_store import WorkloadCost


def to_record(trial, outcome):
    return json.loads(encode(to_result(trial, outcome, run_id="1")))


def metrics_of(record):
    [metrics] = record["metrics"].values()
    return metrics


def typed(records):
    return [converted(record, Result) for record in records]


def shares_of_roof(records, ceilings):
    return roofs.shares_of_roof(typed(records), ceilings)


def known_ceilings(records, **host):
    usual = decoded(plain_document()).execution_environment.host
    return roofs.known_ceilings(typed(records), attrs.evolve(usual, **host))


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
    """Makes a module that contains a reference and the given values."""

    def make(**members):
        module = types.ModuleType("made_up_reference")
        vars(module).update(members)
        monkeypatch.setitem(sys.modules, module.__name__, module)
        return "made_up_reference:compute"

    return make


def test_the_counter_next_to_a_reference_is_asked(reference):
    found = preparing.count_cost(
        reference(cost=lambda model, inputs: (model, inputs)), "model", [1]
    )
    assert found == ("model", [1])


def test_a_reference_without_a_counter_reports_it(reference):
    found = preparing.count_cost(reference(), "model", [])
    assert (found.flops, found.bytes) == (None, None)
    assert found.flops_source == found.bytes_source == "made_up_reference does not define a cost"


def test_a_model_that_can_not_be_counted_gives_the_reason(reference):
    def cost(model, inputs):
        raise ValueError("a `while` loop")

    found = preparing.count_cost(reference(cost=cost), "model", [])
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
            record = to_record(trial, finished())
            metrics = metrics_of(record)
            metrics["median_latency_ms"] = 20.0
            del metrics["workload_cost"]
            for key, value in change.items():
                metrics[key] = metrics.get(key, {}) | value
            records.append(record)
        return shares_of_roof(records, [ROOF])

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
        # The model's count has precedence over a program's own, whichever comes first.
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
    record = to_record(make_trial(NAME.format("PT"), "pt_inductor:eager"), finished())
    metrics_of(record).update({"median_latency_ms": 20.0, **COUNTED})
    assert shares_of_roof([record], [ROOF]) == ["50%"]
    record["definition"]["device"] = "host-gpu"
    assert shares_of_roof([record], [ROOF]) == [None]


@pytest.fixture
def counted(make_trial, finished):
    record = to_record(make_trial(NAME.format("PT"), "pt_inductor:eager"), finished())
    metrics_of(record).update({"median_latency_ms": 20.0, **COUNTED})
    return [record]


def _ceilings(records, monkeypatch, *, measure, found=None, result=ROOF):
    said, saved = [], []
    monkeypatch.setattr(roofs, "load_ceilings", lambda threads, gpu: found)
    monkeypatch.setattr(roofs, "save_ceilings", saved.append)

    def measured(threads, device):
        assert device == records[0]["definition"]["device"]
        if isinstance(result, Exception):
            raise result
        return result

    monkeypatch.setattr(roofs, "measure_ceilings", measured)
    answer = roofs.ceilings_for(typed(records), 2, measure=measure, say=said.append)
    return answer, said, saved


def test_ceilings_are_measured_once_where_they_are_of_use(counted, monkeypatch):
    answer, said, saved = _ceilings(counted, monkeypatch, measure=True)
    assert (answer, saved) == ((ROOF,), [ROOF])
    assert said
    assert _ceilings(counted, monkeypatch, measure=True, found=ROOF) == ((ROOF,), [], [])


def test_a_first_look_is_told_how_to_measure_them(counted, monkeypatch):
    answer, (said,), saved = _ceilings(counted, monkeypatch, measure=False)
    assert (answer, saved) == ((), [])
    assert "cbs doctor --ceilings" in said


def test_nobody_waits_for_ceilings_of_no_use(counted, monkeypatch):
    metrics_of(counted[0]).pop("workload_cost")
    assert _ceilings(counted, monkeypatch, measure=True) == ((), [], [])


def test_ceilings_that_can_not_be_measured_cost_only_the_share(counted, monkeypatch):
    failure = CeilingsError("no product")
    answer, said, saved = _ceilings(counted, monkeypatch, measure=True, result=failure)
    assert (answer, saved) == ((), [])
    assert said[-1] == "roof shares are unknown: no product"


LOW = attrs.evolve(
    ROOF,
    gemms=tuple(attrs.evolve(gemm, gflops=gemm.gflops / 4) for gemm in ROOF.gemms),
    contended=True,
)


def test_ceilings_that_a_result_is_above_are_measured_again(counted, monkeypatch):
    answer, said, saved = _ceilings(counted, monkeypatch, measure=True, found=LOW)
    assert (answer, saved) == ((ROOF,), [ROOF])
    assert said[0] == (
        f"results above the roof: {len(counted)}; the ceilings measured on {LOW.date} on a "
        "busy machine are too low"
    )
    answer, said, saved = _ceilings(counted, monkeypatch, measure=False, found=LOW)
    assert (answer, saved) == ((LOW,), [])
    assert said[-1] == "run `cbs doctor --ceilings` to measure them again"


H100 = "NVIDIA H100 80GB HBM3"
# 50 TFLOP/s, 400 with TF32, and 2 TB/s.
ROOF_OF_H100 = Ceilings(
    cpu_model="CPU",
    threads=None,
    gpu=H100,
    date="2026-01-01T00:00:00+00:00",
    gemms=tuple(
        Gemm(data_type=data_type, library="torch", version="1", size=8192, gflops=gflops)
        for data_type, gflops in (("fp32", 5e4), ("tf32", 4e5), ("bf16", 8e5))
    ),
    copies=(Copy(threads=None, library="torch", buffer_bytes=1, version="1", gb_per_s=2e3),),
)


@pytest.fixture
def on_gpu(counted):
    """Makes records of a GPU: 1 GFLOP in 40 us, where fp32 needs 20 us and tf32 2.5."""

    def make(**program):
        record = copy.deepcopy(counted[0])
        record["definition"]["device"] = "host-gpu"
        metrics_of(record)["median_latency_ms"] = 0.04
        metrics_of(record)["program"] |= {"device_name": H100, "notes": {}} | program
        return record

    return make


@pytest.mark.parametrize(
    ("notes", "precision", "share"),
    [
        ({"tf32": False}, "fp32", "50%"),
        ({"tf32": None}, "fp32", "50%"),
        ({}, "fp32", "50%"),
        ({"tf32": True}, "fp32", "6.2%"),
        ({"tf32": True}, "bf16", "3.1%"),
        ({"tf32": True}, "int8", None),
    ],
)
def test_an_fp32_result_is_judged_by_the_units_that_computed_it(on_gpu, notes, precision, share):
    record = on_gpu(notes=notes)
    record["definition"]["precision"] = precision
    assert shares_of_roof([record], [ROOF, ROOF_OF_H100]) == [share]


# 400 G operations/s in int8, compared with 100 GFLOP/s.
ROOF_WITH_INT8 = attrs.evolve(
    ROOF, gemms=(*ROOF.gemms, attrs.evolve(ROOF.gemms[0], data_type="int8", gflops=400.0))
)


@pytest.mark.parametrize(
    ("precision", "data_type", "share"),
    [
        ("fp32", "fp32", "50%"),
        # Products of narrow factors: by recipe, and by LiteRT's converter.
        ("int8dq", "fp32", "12%"),
        ("dynamic-range", "fp32", "12%"),
        ("int8", "int8", "12%"),
        ("int8_mixed_precision_training", "fp32", "12%"),
        # Narrow weights alone, and unknown types.
        ("int8wo", "fp32", "50%"),
        ("fp16-weights", "fp32", "50%"),
        ("of-a-plugin-that-is-gone", "fp32", "50%"),
        ("float8dq-row", "fp32", None),
    ],
)
def test_a_recipe_is_judged_by_the_arithmetic_of_its_products(counted, precision, data_type, share):
    counted[0]["definition"] |= {"precision": precision, "data_type": data_type}
    assert shares_of_roof(counted, [ROOF_WITH_INT8]) == [share]


def test_narrow_weights_are_fewer_bytes_to_move(counted):
    metrics = metrics_of(counted[0])
    metrics["workload_cost"] = {"flops": 0, "bytes": 10**8}  # 10 ms of 20
    assert shares_of_roof(counted, [ROOF]) == ["50%"]
    applied = {"bytes_before": 8 * 10**7, "bytes_after": 2 * 10**7}
    metrics["program"]["notes"] = {"recipe": applied}
    assert shares_of_roof(counted, [ROOF]) == ["20%"]
    metrics["program"]["notes"] = {"recipe": applied | {"bytes_before": 10**9}}
    assert shares_of_roof(counted, [ROOF]) == [None]


def test_older_ceilings_are_measured_again_for_what_they_lack_alone(counted, monkeypatch):
    asked = []

    def ask(_, arguments, __):
        _, library, data_type, _ = arguments
        asked.append((library, data_type))
        if library == "jax":
            return Answer(problem="no time")
        return Answer(values={"version": "1", "size": 64, "gflops": 400.0})

    monkeypatch.setattr(ceilings, "ask", ask)
    old = attrs.evolve(
        ROOF,
        gemms=tuple(attrs.evolve(ROOF.gemms[0], data_type=t) for t in ("fp32", "bf16")),
        skipped=("torch fp16: crashed",),
    )
    assert _ceilings(counted, monkeypatch, measure=True, found=old) == ((old,), [], [])
    counted[0]["definition"]["precision"] = "int8dq"
    assert _ceilings(counted, monkeypatch, measure=False, found=old)[0] == (old,)
    assert not asked
    (answer,), said, saved = _ceilings(counted, monkeypatch, measure=True, found=old)
    assert {data_type for _, data_type in asked} == {"int8"}
    assert answer.gemms[: len(old.gemms)] == old.gemms
    assert answer.best_gemm("int8").gflops == 400.0
    assert saved == [answer]
    assert any("torch int8: 400" in line for line in said)
    asked.clear()
    assert _ceilings(counted, monkeypatch, measure=True, found=answer) == ((answer,), [], [])
    assert not asked


def test_each_result_is_judged_by_its_own_device(on_gpu, counted):
    other = on_gpu(device_name="NVIDIA H200")
    other["run_id"] = "2"
    records = [*counted, on_gpu(), other]
    assert shares_of_roof(records, [ROOF, ROOF_OF_H100]) == ["50%", "50%", None]
    assert shares_of_roof(records, [ROOF]) == ["50%", None, None]
    assert shares_of_roof(records, [ROOF_OF_H100]) == [None, "50%", None]
    assert shares_of_roof(records, []) == [None, None, None]


def test_a_backend_that_cannot_name_the_gpu_is_judged_by_what_others_say(on_gpu):
    silent = on_gpu(device_name=None)
    assert shares_of_roof([silent], [ROOF_OF_H100]) == [None]
    assert shares_of_roof([silent, on_gpu()], [ROOF_OF_H100]) == ["50%", "50%"]
    # Another run's device is unknown, and two names are ambiguous.
    silent["run_id"] = "2"
    assert shares_of_roof([silent, on_gpu()], [ROOF_OF_H100]) == [None, "50%"]
    silent["run_id"] = "1"
    two = [silent, on_gpu(), on_gpu(device_name="NVIDIA H200")]
    assert shares_of_roof(two, [ROOF_OF_H100]) == [None, "50%", None]


def test_the_ceilings_of_a_gpu_are_measured_once(on_gpu, monkeypatch):
    records = [on_gpu(), on_gpu()]
    answer, said, saved = _ceilings(records, monkeypatch, measure=True, result=ROOF_OF_H100)
    assert (answer, saved) == ((ROOF_OF_H100,), [ROOF_OF_H100])
    assert "two minutes" in said[0]
    answer, (said,), _ = _ceilings(records, monkeypatch, measure=False)
    assert "`cbs doctor --ceilings -device host-gpu`" in said


def test_a_gpu_without_a_name_has_no_ceilings(on_gpu, monkeypatch):
    found = _ceilings([on_gpu(device_name=None)], monkeypatch, measure=True)
    assert found == ((), [], [])


def test_ceilings_are_kept_by_device_and_found_again(on_gpu, counted):
    host = {"threads": 2, "cpu_model": "CPU"}
    records = [*counted, on_gpu()]
    assert known_ceilings(records, **host) == ()
    for one in (ROOF, ROOF_OF_H100):
        ceilings.save_ceilings(one)
    assert known_ceilings(records, **host) == (ROOF, ROOF_OF_H100)
    assert known_ceilings([on_gpu()], cpu_model=None) == (ROOF_OF_H100,)
    assert known_ceilings(counted, **host | {"threads": 1}) == ()
