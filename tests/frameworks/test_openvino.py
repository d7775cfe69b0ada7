"""OpenVINO: types that it computes in, and the tiny models through it."""

import json
import re
import subprocess
import sys

import pytest
from framework_process import run_script
from tests_support import run_cbs

from comparative_benchmark.backends.api import BackendContext, UnsupportedError, untimed
from openxla.benchmark.devices import HOST_CPU

pytestmark = pytest.mark.frameworks
pytest.importorskip("comparative_benchmark.openvino.program")

NO_TELEMETRY = """
import sys
from comparative_benchmark.openvino.program import ov
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
    from comparative_benchmark.openvino.program import ov

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


def test_allocated_outputs_have_memory_of_their_own():
    import numpy as np

    from comparative_benchmark.backends.resident_programs import SingleProgram
    from comparative_benchmark.openvino.backend import CompiledProgram
    from comparative_benchmark.openvino.front_ends import INPUT, OUTPUT
    from comparative_benchmark.openvino.program import ov

    x = ov.opset15.parameter([4], ov.Type.f32)
    model = ov.Model([ov.opset15.add(x, np.ones(4, np.float32))], [x])
    model.input(0).set_names({INPUT.format(0)})
    model.output(0).set_names({OUTPUT.format(0)})
    program = CompiledProgram(ov.Core().compile_model(model, "CPU"))
    single = SingleProgram(program, [np.zeros(4, np.float32)], allocates=True)
    first = single.run()
    single.replace_inputs([np.full(4, 5, np.float32)])
    second = single.run()
    assert [single.fetch(ran)[0].max() for ran in (first, second)] == [1, 6]


def test_outputs_that_no_buffer_can_be_bound_to_are_unsupported():
    from comparative_benchmark.openvino import front_ends
    from comparative_benchmark.openvino.backend import Buffer
    from comparative_benchmark.openvino.program import ov

    x = ov.opset15.parameter([4], ov.Type.f32)
    returned = ov.Model([ov.opset15.relu(x), x], [x])
    with pytest.raises(UnsupportedError, match="cannot bind output 1, which is an input"):
        front_ends._check_outputs(returned)
    found = ov.Model([ov.opset15.non_zero(x)], [x])
    found.output(0).set_names({"output_0"})
    with pytest.raises(UnsupportedError, match="the shape of output_0 depends on values"):
        Buffer(ov.Core().compile_model(found, "CPU").output(0))


def test_products_in_another_type_are_found():
    from comparative_benchmark.openvino import program

    mixed = {"FullyConnected": {"bf16": 3, "f32": 1}, "Eltwise": {"f32": 7}}
    assert program.runs_products_in(mixed, "bf16")
    assert not program.runs_products_in({"FullyConnected": {"f32": 4}}, "bf16")
    assert program.runs_products_in({"Eltwise": {"f32": 1}}, "bf16")


PRODUCT = "FullyConnected"


@pytest.mark.parametrize(
    ("options", "got", "layers", "advice"),
    [
        ((), "f32", {}, "openvino:latency+widened,"),
        ((), "bf16", {PRODUCT: {"f32": 1}}, "openvino:latency+widened,"),
        (("int8wo",), "f32", {}, "openvino:latency+int8wo+widened,"),
        (("int8wo",), "bf16", {PRODUCT: {"i8": 1}}, None),
        (("widened", "int8wo"), "f32", {}, None),
        (("default-precision",), "f32", {}, None),
    ],
)
def test_a_recipe_does_not_allow_another_type(tmp_path, monkeypatch, options, got, layers, advice):
    from comparative_benchmark.openvino import program
    from comparative_benchmark.openvino.backend import OpenVino

    context = BackendContext(
        compiler="latency",
        options=options,
        device=HOST_CPU,
        threads=1,
        work_dir=tmp_path,
        phase=untimed,
    )
    backend = OpenVino(context)
    backend._element_type, backend._compiled = "bf16", [None]
    monkeypatch.setattr(program, "precision_of", lambda _: got)
    monkeypatch.setattr(program, "executed", lambda _: layers)
    if advice is None:
        backend._check_precision()
    else:
        with pytest.raises(UnsupportedError, match=re.escape(advice)):
            backend._check_precision()


TINY = (
    "models/(BERT_TINY_.+_PT_.+_BATCH1|(RESNET|LLAMA|EFFICIENTNET)_TINY_FP32_PT_.+_BATCH1"
    "|GPT2_TINY_GREEDY_FP32_PT_1X.+)/inputs/INPUT_DATA_MODEL_DEFAULT"
)
BERT = "models/BERT_TINY_.+_PT_.+_BATCH1/inputs/INPUT_DATA_MODEL_DEFAULT"


@pytest.fixture(scope="module")
def tiny(tmp_path_factory, environment):
    """BERT in three types, and further models in float32, including one that generates."""
    return _run("openvino", TINY, tmp_path_factory.mktemp("latency"), environment)


@pytest.fixture(scope="module")
def otherwise(tmp_path_factory, environment):
    """BERT, allowed to compute in other types."""
    competitors = "openvino:latency+default-precision,openvino:latency+widened"
    return _run(competitors, BERT, tmp_path_factory.mktemp("otherwise"), environment)


def _run(backend, name, directory, environment):
    return run_cbs(
        *("--backend", backend, "-name", name),
        # One process: most of the time would go to importing PyTorch.
        *("-w", "1", "-iter", "2", "--profile", "--run-in-process"),
        directory=directory,
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
    assert len(records) == 5, tiny.out + tiny.err
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
        for layers in notes["layers"].values():
            precisions = {name for types in layers.values() for name in types}
            assert "f32" in precisions
            assert not {"bf16", "f16"} & precisions


def test_a_model_that_generates_is_two_programs_and_measured_in_parts(tiny):
    [record] = [r for r in _records(tiny, "FP32") if "GREEDY" in r["definition"]["model"]]
    metrics = record["metrics"]["compiler_level"]
    assert set(metrics["program"]["notes"]["layers"]) == {"prefill", "decode"}
    assert metrics["generation"]["prefill_ms"] > 0


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


def test_widening_has_to_be_asked_for_and_is_told(otherwise):
    for data_type, name in (("FP16", "f16"), ("BF16", "bf16")):
        [record] = _records(otherwise, data_type, "latency+widened")
        assert record["status"] == "ok", record
        notes = record["metrics"]["compiler_level"]["program"]["notes"]
        assert (notes["model_precision"], notes["inference_precision"]) == (name, "f32")


def test_what_openvino_does_unasked_is_judged_as_float32(otherwise):
    [record] = _records(otherwise, "FP32", "latency+default-precision")
    metrics = record["metrics"]["compiler_level"]
    if metrics["program"]["notes"]["inference_precision"] == "f32":
        assert record["status"] == "ok", record
    else:  # half of the digits are gone
        assert record["status"] == "wrong_output", record
        assert metrics["verification"]["relative_rmse"] > 1e-4


def test_the_same_program_comes_out_of_two_conversions_and_no_other(tiny, otherwise):
    def digests(records):
        return {
            record["definition"]["model"]: metrics["program"]["artifact_sha256"]
            for record in records
            for metrics in record["metrics"].values()
        }

    [(model, again)] = digests(_records(otherwise, "FP32", "latency+widened")).items()
    assert digests(_records(tiny, "FP32"))[model] == again
    assert len(set(digests(_records(tiny, "FP32")).values())) == 5


def test_the_profiler_tells_layers(tiny):
    tables = [path for path in tiny.output.parent.rglob("layers.txt") if "RESNET" in str(path)]
    assert tables
    assert "Convolution" in tables[0].read_text()
    layers = json.loads(tables[0].with_name("layers.json").read_text())
    counts = [len(layer["times_us"]) for layer in layers["layers"].values()]
    # OpenVINO reports a layer that took less than a microsecond as not executed.
    assert max(counts) == layers["iterations"]
    assert min(counts) > 0


CACHED = """
import json, sys
from pathlib import Path
import numpy as np
from comparative_benchmark.openvino import program
from comparative_benchmark.openvino.program import ov

folder = Path(sys.argv[1])
ops = ov.opset15
x = ops.parameter([4, 64], ov.Type.f32)
weight = ops.constant(np.random.default_rng(0).standard_normal((64, 64), np.float32))
path = folder / "model.xml"
program.save(ov.Model([ops.matmul(x, weight, False, False)], [x]), path)
properties = program.configuration(threads=1, precision="f32", cache_dir=str(folder / "c"))
found = []
for _ in range(2):
    core = ov.Core()
    compiled = core.compile_model(core.read_model(path), program.DEVICE, properties)
    hit = compiled.get_property("LOADED_FROM_CACHE")
    found.append([hit, program.fingerprint(compiled, path)])
(folder / "found.json").write_text(json.dumps(found))
"""


def test_the_cache_serves_who_compiles_again(tmp_path, environment):
    # In another process: after a load from the cache, any signal ends this one by SIGSEGV.
    run_script(CACHED, [str(tmp_path)], environment, framework="openvino")
    [(compiled, first), (loaded, second)] = json.loads((tmp_path / "found.json").read_text())
    assert (compiled, loaded) == (False, True)
    assert first == second


def test_tensorflow_models_go_through_openvino_s_own_front_end(tmp_path, environment):
    pytest.importorskip("tensorflow")
    run = _run(
        "openvino",
        "models/(RESNET_TINY_FP32_TF_.+_BATCH1|GPT2_TINY_GREEDY_FP32_TF_1X.+)/.+DEFAULT",
        tmp_path,
        environment,
    )
    statuses = {name.split()[0]: status for name, status in run.statuses.items()}
    [(_, resnet), (_, generating)] = sorted(statuses.items(), reverse=True)
    assert resnet == "ok", run.out + run.err
    # Its loop has an operation that the front end does not support; this is reported.
    assert generating == "unsupported"
    assert "XlaDynamicUpdateSlice" in run.out
