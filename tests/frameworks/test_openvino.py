"""OpenVINO: types that it computes in, and the tiny models through it."""

import json
import subprocess
import sys

import pytest
from tests_support import run_cbs

pytestmark = pytest.mark.frameworks
pytest.importorskip("comparative_benchmark.openvino.toolkit")

NO_TELEMETRY = """
import sys
from comparative_benchmark.openvino.toolkit import ov
import openvino.tools.ovc.convert_impl as conversion
assert "stub" in conversion.tm.__name__, conversion.tm
assert sys.modules["openvino_telemetry"] is None
"""


def test_conversions_are_reported_to_nobody():
    done = subprocess.run(
        [sys.executable, "-c", NO_TELEMETRY], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_type_of_a_model_is_that_of_most_of_its_weights():
    import numpy as np

    from comparative_benchmark.openvino import program
    from comparative_benchmark.openvino.toolkit import ov

    def model(weights, inputs):
        ops = ov.opset15
        x = ops.parameter([4], inputs)
        total = ops.convert(x, "f32")
        for weight in weights:
            total = ops.add(total, ops.convert(ops.constant(weight), "f32"))
        return ov.Model([total], [x])

    half, wide = np.ones(4, np.float16), np.ones(1, np.float32)
    assert program.element_type(model([half, wide], ov.Type.i32)) == "f16"
    assert program.element_type(model([half[:1], np.ones(4, np.float32)], ov.Type.i32)) == "f32"
    assert program.element_type(model([], ov.Type.bf16)) == "bf16"
    assert program.element_type(model([], ov.Type.i32)) == "f32"


def test_products_in_another_type_are_found():
    from comparative_benchmark.openvino import program

    mixed = {"FullyConnected": {"bf16": 3, "f32": 1}, "Eltwise": {"f32": 7}}
    assert program.runs_products_in(mixed, "bf16")
    assert not program.runs_products_in({"FullyConnected": {"f32": 4}}, "bf16")
    assert program.runs_products_in({"Eltwise": {"f32": 1}}, "bf16")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory, environment):
    """BERT in three types, and ResNet, as users run them."""
    return run_cbs(
        *("--backend", "openvino,openvino:latency+default-precision,openvino:latency+widened"),
        *("-name", "models/(BERT_TINY_.+_PT|RESNET_TINY_FP32_PT)_.+_BATCH1/.+"),
        *("-w", "1", "-iter", "3"),
        directory=tmp_path_factory.mktemp("openvino"),
        environment=environment,
    )


def _records(run, data_type, compiler="latency"):
    return [
        record
        for record in run.document["benchmarks"]
        if record["definition"]["compiler"] == compiler
        and f"_{data_type}_" in record["definition"]["model"]
    ]


def test_float32_is_right_and_says_what_was_run(tiny):
    records = _records(tiny, "FP32")
    assert len(records) == 2, tiny.out + tiny.err
    for record in records:
        assert record["status"] == "ok", record
        metrics = record["metrics"]["compiler_level"]
        assert 0 < metrics["verification"]["relative_rmse"] < 1e-5
        for phase in ("import", "load", "h2d", "trace", "lower", "compile", "first_run", "d2h"):
            assert metrics["phases"][phase]["ms"] > 0
        program = metrics["program"]
        assert program["weights"] == "frozen"
        assert len(program["artifact_sha256"]) == 64
        notes = program["notes"]
        assert notes["inference_precision"] == notes["model_precision"] == "f32"
        precisions = {name for types in notes["layers"]["model"].values() for name in types}
        assert "f32" in precisions
        assert not {"bf16", "f16"} & precisions


@pytest.mark.parametrize(("data_type", "name"), [("FP16", "f16"), ("BF16", "bf16")])
def test_sixteen_bits_are_computed_in_sixteen_bits_or_not_at_all(tiny, data_type, name):
    [record] = _records(tiny, data_type)
    if record["status"] == "ok":  # a CPU with such kernels
        notes = record["metrics"]["compiler_level"]["program"]["notes"]
        assert notes["inference_precision"] == notes["model_precision"] == name
        assert name in notes["layers"]["model"]["FullyConnected"]
    else:
        assert record["status"] == "unsupported", record
        reason = record["reason"]
        assert f"no {name} kernels" in reason
        assert "latency+widened" in reason


def test_widening_has_to_be_asked_for_and_is_told(tiny):
    for data_type, name in (("FP16", "f16"), ("BF16", "bf16")):
        [record] = _records(tiny, data_type, "latency+widened")
        assert record["status"] == "ok", record
        notes = record["metrics"]["compiler_level"]["program"]["notes"]
        assert (notes["model_precision"], notes["inference_precision"]) == (name, "f32")


def test_what_openvino_does_unasked_is_judged_as_float32(tiny):
    for record in _records(tiny, "FP32", "latency+default-precision"):
        metrics = record["metrics"]["compiler_level"]
        if metrics["program"]["notes"]["inference_precision"] == "f32":
            assert record["status"] == "ok", record
        else:  # half of the digits are gone
            assert record["status"] == "wrong_output", record
            assert metrics["verification"]["relative_rmse"] > 1e-4


def test_the_cache_serves_the_second_process_with_the_same_program(cbs_run):
    run = cbs_run(
        *("--backend", "openvino", "--compile-only", "--processes", "1"),
        *("-name", "models/RESNET_TINY_FP32_PT_.+_BATCH1/.+"),
    )
    assert run.code == 0, run.out + run.err
    [record] = run.document["benchmarks"]
    [cold, warm] = record["metrics"]["compiler_level"]["compile"]["processes"]
    assert (cold["cache_hits"], cold["cache_misses"]) == (0, 1)
    assert (warm["cache_hits"], warm["cache_misses"]) == (1, 0)
    assert cold["artifact_sha256"] == warm["artifact_sha256"]


def test_the_profiler_tells_layers(cbs_run, tmp_path):
    run = cbs_run(
        *("--backend", "openvino", "--profile", "-w", "1", "-iter", "2"),
        *("-name", "models/RESNET_TINY_FP32_PT_.+_BATCH1/.+"),
    )
    assert run.code == 0, run.out + run.err
    [table] = tmp_path.rglob("layers.txt")
    assert "Convolution" in table.read_text()
    layers = json.loads(table.with_name("layers.json").read_text())
    assert all(len(x["times_us"]) == layers["iterations"] for x in layers["layers"].values())
