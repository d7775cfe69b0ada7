"""The backend tf_xla, and IREE's route from TensorFlow, on the tiny models."""

import gzip
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from agreement_support import need
from framework_process import run_script
from session_support import bring_up

from comparative_benchmark.backends.api import get_backend
from comparative_benchmark.engine import checks
from comparative_benchmark.engine.messages import Outputs
from comparative_benchmark.engine.session import Limits, Session
from comparative_benchmark.engine.settings import RunSettings
from openxla.benchmark.comparative_suite import catalog
from openxla.benchmark.devices import ALL_DEVICES
from openxla.benchmark.installation import ROOT_DIR_VARIABLE

pytestmark = pytest.mark.frameworks

COMPETITORS = ("tf_xla:xla", "tf_xla:graph", "iree:llvm-cpu-data-tiling")


@pytest.fixture(scope="module", autouse=True)
def _tensorflow():
    need("tensorflow")


@pytest.mark.parametrize("competitor", COMPETITORS)
def test_results_say_what_was_measured(records, competitor):
    found = records(competitor, "TF")
    assert len(found) == 2
    for record in found:
        [(level, metrics)] = record["metrics"].items()
        assert level == ("compiler_level" if "iree" in competitor else "framework_level")
        assert metrics["program"]["weights"] == "parameters"
        assert metrics["verification"]["passed"]
        assert metrics["final_verification"]["passed"]
        assert 0 < metrics["verification"]["relative_rmse"] < 1e-5
        assert len(metrics["latencies_ms"]) == 20
        assert {"tensorflow", "keras"} <= set(record["versions"])


def test_phases_are_told_apart_where_tensorflow_can(records):
    for competitor in ("tf_xla:xla", "tf_xla:graph"):
        for record in records(competitor):
            phases = record["metrics"]["framework_level"]["phases"]
            for name in ("import", "load", "h2d", "trace", "compile", "d2h"):
                assert phases[name]["ms"] > 0
            assert phases["lower"] == phases["first_run"] == "not_measurable"
    for record in records("iree:llvm-cpu-data-tiling", "TF"):
        phases = record["metrics"]["compiler_level"]["phases"]
        assert phases["trace"]["ms"] > 0 < phases["lower"]["ms"]


def test_programs_hold_no_weights(records):
    for record in records("iree:llvm-cpu-data-tiling", "TF"):
        program = record["metrics"]["compiler_level"]["program"]
        assert program["artifact_size_bytes"] < program["notes"]["parameters_size_bytes"]


def test_xla_programs_have_a_digest(records):
    digests = {
        record["metrics"]["framework_level"]["program"]["artifact_sha256"]
        for record in records("tf_xla:xla")
    }
    assert len(digests) == 2
    assert None not in digests


def test_sixteen_bit_types_are_right_compiled_and_op_by_op(cbs_run):
    # IREE without data tiling, which does not compile bf16 for every CPU with AVX-512.
    run = cbs_run(
        *("--backend", "tf_xla:graph,tf_xla:eager,iree:llvm-cpu"),
        *("-name", "models/BERT_TINY_BF16_TF_.+_BATCH1/.+", "-w", "1", "-iter", "2"),
    )
    assert run.code == 0, run.out + run.err
    assert list(run.statuses.values()) == ["ok"] * 3
    [eager] = [r for r in run.document["benchmarks"] if r["definition"]["compiler"] == "eager"]
    metrics = eager["metrics"]["framework_level"]
    assert metrics["program"]["weights"] == "parameters"
    assert metrics["compile_time_ms"] is None
    assert "compile" not in metrics["phases"]


def test_a_model_that_generates_is_measured_whole_and_in_parts(cbs_run):
    run = cbs_run(
        *("--backend", "tf_xla:xla", "-w", "1", "-iter", "2"),
        *("-name", "models/GPT2_TINY_GREEDY_FP32_TF_1X16XI32_8XI32/.+"),
    )
    assert run.code == 0, run.out + run.err
    [xla] = run.document["benchmarks"]
    parts = xla["metrics"]["framework_level"]["generation"]
    assert parts["prefill_ms"] > 0 < parts["decode_ms_per_token"]
    assert parts["verification"]["passed"]


ON_OTHER_INPUTS = """
import contextlib, json, os, sys
from pathlib import Path
import numpy as np, tensorflow as tf
from comparative_benchmark.backends.api import BackendContext, UnsupportedError
from comparative_benchmark.tf_xla.backend import TfXla
from openxla.benchmark.devices import ALL_DEVICES
os.environ["TF_NUM_INTRAOP_THREADS"] = "1"
class Model:
    def __init__(self, forward):
        self.forward = forward
def made(compiler, forward, x):
    [device] = [device for device in ALL_DEVICES if device.name == "host-cpu"]
    backend = TfXla(BackendContext(
        compiler=compiler, options=(), device=device, threads=1, work_dir=Path(sys.argv[1]).parent,
        phase=lambda name: contextlib.nullcontext()))
    backend.load(Model(forward), [x])
    backend.compile()
    return backend
found = {}
for compiler in ("xla", "graph", "eager"):
    backend = made(compiler, lambda x, y=None: (x * 2 if y is None else x * y), np.ones(3, "f4"))
    [plain] = backend.fetch(backend.dispatch())
    [other] = backend.run_with([np.ones(3, "f4"), np.full(3, 5, "f4")])
    found[compiler] = [plain.tolist(), other.tolist()]
    found[f"{compiler} weights"] = backend.facts().weights
try:
    made("xla", lambda x: tf.numpy_function(np.sin, [x], tf.float32), np.ones(3, "f4"))
except UnsupportedError as error:
    found["unsupported"] = str(error)
try:
    made("graph", lambda x: tf.gather(x, [7]), np.ones(3, "f4"))
except tf.errors.InvalidArgumentError as error:
    found["wrong"] = type(error).__name__
Path(sys.argv[1]).write_text(json.dumps(found))
"""


def test_further_inputs_and_what_xla_can_not_compile(tmp_path, environment):
    target = tmp_path / "found.json"
    run_script(ON_OTHER_INPUTS, [str(target)], environment, framework="tf")
    found = json.loads(target.read_text())
    for compiler in ("xla", "graph", "eager"):
        assert found[compiler] == [[2.0] * 3, [5.0] * 3]
        assert found[f"{compiler} weights"] == "frozen"  # it has none
    assert "cannot" in found["unsupported"]
    assert "PyFunc" in found["unsupported"]
    assert found["wrong"] == "InvalidArgumentError"  # the model's own mistake


def test_tensorflow_and_jax_share_their_workloads(environment):
    from openxla.benchmark import workloads

    cases = catalog.all_benchmarks([])
    for tf_name, jax_name in (
        ("BERT_TINY_BF16_TF_32XI32_BATCH4", "BERT_TINY_BF16_JAX_32XI32_BATCH4"),
        ("RESNET_TINY_FP32_TF_32X32X3XF32_BATCH1", "RESNET_TINY_FP32_JAX_3X32X32XF32_BATCH1"),
        ("EFFICIENTNETB7_FP32_TF_600X600X3XF32_BATCH1", "EFFICIENTNETB7_FP32_JAX_3X600X.+_BATCH1"),
    ):
        [tf], [jax] = (
            catalog.select(cases, name=f"models/{name}/.+") for name in (tf_name, jax_name)
        )
        assert workloads.workload_of(tf).digest == workloads.workload_of(jax).digest


def test_a_warm_process_loads_what_a_cold_one_compiled(cbs_run):
    run = cbs_run(
        *("--backend", "tf_xla:xla", "--compile-only", "--processes", "1"),
        *("-name", "models/BERT_TINY_FP32_TF_.+_BATCH1/.+"),
    )
    assert run.code == 0, run.out + run.err
    [record] = run.document["benchmarks"]
    [metrics] = record["metrics"].values()
    [cold, warm] = metrics["compile"]["processes"]
    assert (cold["cache_hits"], cold["cache_misses"]) == (0, 1)
    assert (warm["cache_hits"], warm["cache_misses"]) == (1, 0)
    assert cold["artifact_sha256"] == warm["artifact_sha256"] is not None


def test_tensorflows_stablehlo_becomes_what_iree_reads():
    need("iree")
    from iree.compiler import ir

    from comparative_benchmark.iree.compilation import as_iree_reads

    text = """
func.func @main(%arg0: tensor<4x4xf32>) -> (tensor<4x4xi1>, tensor<4x4xf32>) {
  %c = stablehlo.constant dense<"0x3121"> : tensor<4x4xi1>
  %0 = mhlo.copy %arg0 : tensor<4x4xf32>
  return %c, %0 : tensor<4x4xi1>, tensor<4x4xf32>
}"""
    with ir.Context(), ir.Location.unknown():
        with pytest.raises(ir.MLIRError):
            ir.Module.parse(text)
        module = ir.Module.parse(as_iree_reads(text))
        constant, copied, _ = module.body.operations[0].entry_block.operations
        # Row by row, the lowest bit first: 1000 1100 1000 0100.
        values = np.array(constant.attributes["value"])
        assert values.astype(int).tolist() == [
            [1, 0, 0, 0],
            [1, 1, 0, 0],
            [1, 0, 0, 0],
            [0, 1, 0, 0],
        ]
        assert "stablehlo.reshape" in str(copied)


COSTS = """
import importlib, json, sys
from pathlib import Path
import attrs
framework, backend, target = sys.argv[1:]
reference = importlib.import_module(f"comparative_benchmark.{backend}.reference")
found = {}
for name, parameters in {
    "bert": {"model_name": "bert-tiny", "seq_len": 32, "batch_size": 4},
    "resnet": {"model_name": "resnet-tiny", "data_type": "bf16"},
    "vit": {"model_name": "vit-tiny"},
    "efficientnet": {"model_name": "efficientnet-tiny"},
}.items():
    module = importlib.import_module(f"openxla.benchmark.models.{framework}.{name}")
    model = module.create_model(**parameters)
    inputs = model.preprocess(model.generate_default_inputs())
    found[name] = attrs.asdict(reference.cost(model, inputs))
Path(target).write_text(json.dumps(found))
"""


def test_work_is_counted_as_in_jax(tmp_path, environment):
    found = {}
    for framework, backend in (("tf", "tf_xla"), ("jax", "jax_xla")):
        target = tmp_path / f"{framework}.json"
        run_script(COSTS, [framework, backend, str(target)], environment, framework=framework)
        found[framework] = json.loads(target.read_text())
    for name, count in found["tf"].items():
        assert count["flops"] == found["jax"][name]["flops"] > 0
        assert count["bytes"] == pytest.approx(found["jax"][name]["bytes"], rel=0.01)
        assert "TensorFlow" in count["flops_source"]


OPERATIONS = """
import json, sys
from pathlib import Path
import numpy as np, tensorflow as tf
from comparative_benchmark.tf_xla.reference import cost
w, table = tf.Variable(np.ones((8, 8), "f4")), tf.Variable(np.ones((100, 8), "f4"))
constant = np.ones((8, 8), "f4")
class Model:
    def __init__(self, forward):
        self.forward = forward
models = {
    "product": lambda x: x @ w,
    "transposed": lambda x: tf.matmul(x, w, transpose_a=True),
    "twice": lambda x: x @ w @ w,
    "constant": lambda x: x @ constant,
    "table": lambda x: x + tf.gather(table, [3, 5, 7, 9]),
    "einsum": lambda x: tf.einsum("ab,bc->ac", x, w),
    "branch": lambda x: tf.cond(x[0, 0] > 0, lambda: x @ w, lambda: x),
    "loop": lambda x: tf.while_loop(lambda y: y[0, 0] < 9, lambda y: [y @ w], [x])[0],
    "call": lambda x: tf.function(lambda y: y @ w)(x),
    "conv3d": lambda x: tf.nn.conv3d(
        tf.reshape(x, (1, 4, 2, 2, 2)), np.ones((1, 1, 1, 2, 2), "f4"), (1,) * 5, "SAME"),
}
found = {}
for name, forward in models.items():
    x = np.ones((8, 4) if name == "transposed" else (4, 8), np.float32)
    try:
        count = cost(Model(forward), [x])
        found[name] = [count.flops, count.bytes]
    except ValueError as error:
        found[name] = [str(error), None]
Path(sys.argv[1]).write_text(json.dumps(found))
"""


def test_operations_are_counted_or_refused(tmp_path, environment):
    target = tmp_path / "found.json"
    run_script(OPERATIONS, [str(target)], environment, framework="tf")
    found = json.loads(target.read_text())
    product, moved = 2 * 4 * 8 * 8, 4 * (8 * 8 + 2 * 4 * 8)
    for name in ("product", "transposed", "constant", "einsum"):
        assert found[name] == [product, moved], name
    assert found["twice"] == [2 * product, moved]
    assert found["table"] == [0, 4 * 3 * 4 * 8]
    assert "If" in found["branch"][0]
    assert "While" in found["loop"][0]
    assert "no formula" in found["call"][0]
    assert "no formula" in found["conv3d"][0]


def test_the_profiler_tells_kernels_and_the_threads_are_those_asked_for(tmp_path, environment):
    backend = get_backend("tf_xla")
    [device] = [device for device in ALL_DEVICES if device.name == "host-cpu"]
    [case] = catalog.select(
        catalog.all_benchmarks([]), name="models/BERT_TINY_FP32_TF_32XI32_BATCH1/.+"
    )
    settings = RunSettings(device=device, threads=1)
    variables = {
        **settings.environment(backend, tmp_path, tmp_path / "cache"),
        ROOT_DIR_VARIABLE: environment[ROOT_DIR_VARIABLE],
    }
    with Session(
        limits=Limits(), log_file=tmp_path / "worker.log", environment=variables
    ) as session:
        bring_up(
            session, case, backend, tmp_path, reference=backend.reference or "", compiler="xla"
        )
        tasks = Path(f"/proc/{session._process.pid}/task").glob("*/comm")
        threads = [path.read_text().strip() for path in tasks]
        taken = checks.take_profile(session, tmp_path / "profiles", [200.0])
        # The worker is as good as before.
        session.call(Outputs, directory=str(tmp_path / "outputs"))
    assert threads.count("tf_Compute") == threads.count("tf_XLAEigen") == 1
    assert taken.error is None, taken.error
    assert set(taken.files) == {"trace.json.gz", "tensorflow.xplane.pb", "operators.json"}
    trace = tmp_path / "profiles" / "trace.json.gz"
    events = json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    spans = [event for event in events if event["ph"] == "X"]
    assert all(span["name"] and span["ts"] >= 0 and span["dur"] >= 0 for span in spans)
    names = [span["name"] for span in spans]
    assert names.count("iteration") == 5
    assert any("dot" in name or "fusion" in name for name in names)


IDENTITY = """
import json, sys
from pathlib import Path
import numpy as np, tensorflow as tf
from comparative_benchmark.tf_xla import backend
x = tf.constant(np.ones((4, 8), "f4"))
def digest(function):
    compiled = tf.function(function, jit_compile=True)
    return backend.fingerprint(
        compiled.experimental_get_compiler_ir(x)(stage="optimized_hlo")
    )
def one(x):
    return tf.tanh(x) * 2.5

def again(x):
    # Elsewhere in the source, under another name.
    return tf.tanh(x) * 2.5
Path(sys.argv[1]).write_text(json.dumps({
    "one": digest(one),
    "again": digest(again),
    "constant": digest(lambda x: tf.tanh(x) * 3.5),
    "operation": digest(lambda x: tf.tanh(x) * 2.5 + 1),
    "shape": digest(lambda x: tf.tanh(x[:2]) * 2.5),
}))
"""


def test_the_digest_is_that_of_the_program(tmp_path, environment):
    target = tmp_path / "digests.json"
    run_script(IDENTITY, [str(target)], environment, framework="tf")
    digests = json.loads(target.read_text())
    assert digests.pop("one") == digests["again"]
    assert len(set(digests.values())) == len(digests)


def test_metadata_and_names_are_no_part_of_the_digest():
    from comparative_benchmark.tf_xla.backend import fingerprint

    text = (
        "HloModule a_inference_f_{}, is_scheduled=true\n\nENTRY %a_inference_f_{} (p: f32[2]) {{\n"
        "  ROOT %t = f32[2]{{0}} tanh(%p){}\n}}\n"
    )
    plain = fingerprint(text.format(1, 1, ""))
    metadata = ', metadata={op_type="Tanh" op_name="a}b\\"c" source_line=3}'
    assert fingerprint(text.format(22, 22, metadata)) == plain
    assert fingerprint(text.replace("tanh", "sine").format(1, 1, "")) != plain


def test_the_cache_tells_hits_from_misses(tmp_path, monkeypatch):
    from comparative_benchmark.tf_xla.backend import CacheUse, PersistentCache

    flag = f"--tf_xla_auto_jit=0 --tf_xla_persistent_cache_directory={tmp_path / 'xla'}"
    monkeypatch.setenv("TF_XLA_FLAGS", flag)
    cache = PersistentCache()
    before = cache.files()
    assert cache.use_since(before) == CacheUse()  # the directory does not even exist
    (tmp_path / "xla").mkdir()
    (tmp_path / "xla" / "one").write_bytes(b"12345")
    assert cache.use_since(before) == CacheUse(hits=0, misses=1, size_bytes=5)
    before = cache.files()
    assert cache.use_since(before) == CacheUse()  # a cold process has loaded nothing
    cache = PersistentCache()
    assert cache.use_since(before) == CacheUse(hits=1, misses=0, size_bytes=5)
    # Compiled again, and moved into its place.
    (tmp_path / "new").write_bytes(b"123456")
    (tmp_path / "new").rename(tmp_path / "xla" / "one")
    assert cache.use_since(before) == CacheUse(hits=0, misses=1, size_bytes=6)
    # Of several programs, the one that was loaded is unknown.
    (tmp_path / "xla" / "two").write_bytes(b"1234567")
    assert cache.use_since(cache.files()) == CacheUse(hits=1, misses=0)
    monkeypatch.delenv("TF_XLA_FLAGS")
    assert PersistentCache().use_since({}) == CacheUse()


LONG_CALL = """
import json, sys, time
from pathlib import Path
import numpy as np, tensorflow as tf
x = tf.constant(np.ones((700, 700), "f4"))
def work(x):
    for _ in range(20):
        x = tf.tanh(x @ x)
    return x
found = {}
for name, jit in (("xla", True), ("graph", None)):
    run = tf.function(work, jit_compile=jit).get_concrete_function(x)
    run(x)
    start = time.perf_counter()
    y = run(x)
    called = time.perf_counter()
    y.numpy()
    found[name] = [called - start, time.perf_counter() - called]
Path(sys.argv[1]).write_text(json.dumps(found))
"""


def test_on_the_cpu_a_call_returns_completed_outputs(tmp_path, environment):
    target = tmp_path / "times.json"
    run_script(LONG_CALL, [str(target)], environment, framework="tf")
    for call_s, fetch_s in json.loads(target.read_text()).values():
        # The rest is a copy of two megabytes.
        assert call_s > 10 * fetch_s


def test_importing_the_backends_description_imports_no_tensorflow():
    script = "import comparative_benchmark.tf_xla, sys; print('tensorflow' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True
    )
    assert done.stdout.strip() == "False"
