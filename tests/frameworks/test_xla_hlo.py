"""XLA programs without a framework: export in another process, compile and run by jaxlib alone."""

import contextlib
import gzip
import json
import os
import subprocess
import sys
from collections import Counter
from types import SimpleNamespace

import attrs
import ml_dtypes
import numpy as np
import pytest
from agreement_support import need

from comparative_benchmark.backends.api import ModelDefinition, UnsupportedError
from openxla.benchmark.artifacts import array_files
from openxla.benchmark.comparative_suite import catalog
from openxla.benchmark.devices import HOST_CPU, HOST_GPU

pytestmark = pytest.mark.frameworks
pytest.importorskip("jaxlib")

from comparative_benchmark.backends import child_process  # noqa: E402
from comparative_benchmark.backends.exported_programs import digest_of_parts  # noqa: E402
from comparative_benchmark.xla_hlo import pjrt  # noqa: E402
from comparative_benchmark.xla_hlo.backend import XlaHlo, stablehlo_of  # noqa: E402
from comparative_benchmark.xla_hlo.export import export_program  # noqa: E402
from comparative_benchmark.xla_hlo.exported_program import (  # noqa: E402
    ExportedProgram,
    HloModule,
    InputType,
    check_parameters,
)
from comparative_benchmark.xla_hlo.pjrt import ExecutableCache  # noqa: E402
from comparative_benchmark.xla_hlo.private_jaxlib import XlaError  # noqa: E402

FORMS = ("stablehlo", "hlo-text", "hlo-proto")
# Two outputs of different types, and a constant that printers of HLO like to leave out.
TWO_OUTPUTS = """
HloModule two_outputs

ENTRY main {{
  x = f32[64]{{0}} parameter(0)
  table = f32[64]{{0}} constant({{{table}}})
  sum = f32[64]{{0}} add(x, table)
  wide = s64[64]{{0}} convert(sum)
  ROOT both = (f32[64]{{0}}, s64[64]{{0}}) tuple(sum, wide)
}}
""".format(table=", ".join(str(index / 2) for index in range(64)))

MODEL = """
import jax.numpy as jnp
import numpy as np


class Model:
    params = {"scale": np.full((3,), 2.0, np.float32), "unused": np.zeros((2,), np.int32)}

    def apply(self, params, x, y):
        return params["scale"] * x, y + 1


class Closed:
    def forward(self, x, y):
        return x * np.float32(2.0), y + 1


def create_model(kind="model"):
    if kind == "broken":
        raise ValueError("no such checkpoint")
    if kind == "too large":
        raise MemoryError("17 TiB")
    if kind == "fatal":
        import os
        os.abort()
    return Closed() if kind == "closed" else Model()
"""


TF_MODEL = """
import tensorflow as tf


class Model:
    def __init__(self):
        self.scale = tf.Variable([2.0, 2.0, 2.0])
        self.table = tf.constant([0.5, 1.5, 2.5])  # captured unchanged

    def forward(self, x, y):
        return self.scale * x + self.table, y + 1


def create_model():
    tf.config.set_visible_devices([], "GPU")
    return Model()
"""


@pytest.fixture(scope="module")
def client():
    return pjrt.client("cpu")


@pytest.fixture
def exported(tmp_path, monkeypatch):
    """Exports a model of `MODEL`; returns the program, its own times, and the phases here."""
    (tmp_path / "exported_model.py").write_text(MODEL)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")

    def run(form="stablehlo", module="exported_model", y="int32", **parameters):
        definition = ModelDefinition(module_path=module, parameters=parameters)
        inputs = [np.zeros((3,), np.float32), np.zeros((2, 1), y)]
        entered = []

        @contextlib.contextmanager
        def phase(name):
            entered.append(name)
            yield

        return (*export_program(definition, inputs, form, tmp_path, phase), entered)

    return run


@pytest.fixture(scope="module")
def by_model(records):
    """Results of all forms and of JAX itself, by model and competitor."""
    found = {}
    for competitor in (*(f"xla_hlo:{form}" for form in FORMS), "jax_xla:xla"):
        for record in records(competitor, "JAX"):
            found.setdefault(record["definition"]["model"], {})[competitor] = record
    assert len(found) == 2
    return found


@pytest.mark.parametrize(
    ("asked", "device", "noted"),
    [("highest", HOST_GPU, False), (None, HOST_GPU, True), (None, HOST_CPU, None)],
)
@pytest.mark.parametrize("form", FORMS)
def test_the_program_says_whether_tf32_may_be_used(tmp_path, form, asked, device, noted):
    def apply(x):
        return jax.numpy.dot(x, x, precision=asked)

    jax = pytest.importorskip("jax")
    from comparative_benchmark.xla_hlo.export import JaxExporter

    exporter = JaxExporter(
        SimpleNamespace(forward=apply), [InputType(shape=(4, 4), dtype="float32")], "cpu"
    )
    exporter.trace()
    program = ExportedProgram(directory=tmp_path, form=form, inputs=[0], versions={})
    program.path.write_bytes(exporter.lower(form))
    backend = object.__new__(XlaHlo)
    backend.context = SimpleNamespace(device=device)
    backend._exported = program
    assert backend._tf32 is noted


def test_forms_and_jax_itself_are_one_program(by_model):
    for records in by_model.values():
        assert len(records) == 4
        programs = {
            name: next(iter(record["metrics"].values()))["program"]
            for name, record in records.items()
        }
        # XLA's names differ with the route, the work does not.
        assert len({program["flops"] for program in programs.values()}) == 1
        text, proto = programs["xla_hlo:hlo-text"], programs["xla_hlo:hlo-proto"]
        assert text["artifact_sha256"] == proto["artifact_sha256"] is not None


def test_results_say_what_was_measured_and_who_exported(by_model):
    for records in by_model.values():
        for form in FORMS:
            record = records[f"xla_hlo:{form}"]
            metrics = record["metrics"]["compiler_level"]
            program, phases = metrics["program"], metrics["phases"]
            assert program["weights"] == "arguments"
            assert program["flops"] > 1e5
            assert program["notes"]["memory_analysis"]["argument_size"] > 1e5
            assert program["artifact_size_bytes"] > 1000
            assert program["notes"]["exported_by"].keys() == {"jax", "jaxlib", "flax"}
            for name in ("import", "load", "h2d", "trace", "lower", "compile", "first_run", "d2h"):
                assert phases[name]["ms"] > 0
            own_ms = program["notes"]["export_ms"]
            assert 0 < own_ms["trace"] < own_ms["load"]
            # The processes that measured and ran did not import JAX.
            assert "jaxlib" in record["versions"]
            assert not {"jax", "flax"} & record["versions"].keys()


def test_programs_without_weights_in_them_are_small(by_model):
    for records in by_model.values():
        notes = records["xla_hlo:stablehlo"]["metrics"]["compiler_level"]["program"]["notes"]
        assert notes["program_size_bytes"] < notes["memory_analysis"]["argument_size"]


def test_a_second_process_finds_the_compiled_program(cbs_run):
    run = cbs_run(
        *("--backend", "xla_hlo:stablehlo,xla_hlo:hlo-text", "--compile-only"),
        *("-name", "models/RESNET_TINY_FP32_JAX_.+_BATCH1/.+", "--processes", "1"),
    )
    assert run.code == 0, run.out + run.err
    for record in run.document["benchmarks"]:
        cold, warm = record["metrics"]["compiler_level"]["compile"]["processes"]
        assert (cold["cache_hits"], cold["cache_misses"]) == (0, 1)
        assert (warm["cache_hits"], warm["cache_misses"]) == (1, 0)
        assert cold["artifact_sha256"] == warm["artifact_sha256"]


NAMES = (
    "BERT_TINY_BF16_JAX_32XI32_BATCH1",
    "RESNET_TINY_FP16_JAX_3X32X32XF16_BATCH1",
    "GPT2_TINY_GREEDY_FP32_JAX_1X16XI32_8XI32",  # a loop, and outputs of two types
)


def test_types_and_outputs_of_all_kinds_are_right(cbs_run):
    run = cbs_run(
        *("--backend", "xla_hlo", "-name", f"models/({'|'.join(NAMES)})/.+"),
        *("-w", "1", "-iter", "2", "--share-workers"),
    )
    assert run.code == 0, run.out + run.err
    assert {name.split()[0] for name in run.statuses} == set(NAMES)
    assert set(run.statuses.values()) == {"ok"}


WORKER = """
import json, sys
from pathlib import Path
from comparative_benchmark.engine.worker.executor import Executor
from openxla.benchmark.artifacts import array_files
from openxla.benchmark.models import architectures, checkpoints

directory, module_path = Path(sys.argv[1]), sys.argv[2]
parameters, device = map(json.loads, sys.argv[3:])
architecture = architectures.get("bert")
checkpoint = checkpoints.resolve(architecture, parameters)
raw = architecture.default_inputs(parameters)
inputs = architecture.preprocess(raw, parameters, checkpoint)
files = array_files.save_all(directory, "input", inputs)
executor = Executor(announce=lambda _: None)
def call(command, **arguments):
    answer = executor.handle({"command": command, "id": 0, "arguments": arguments})
    assert answer["type"] != "error", answer["traceback"]
    return answer
call("load", implementation="comparative_benchmark.xla_hlo.backend:XlaHlo",
     context={"compiler": "stablehlo", "options": [], "device": device, "threads": 1,
              "work_dir": str(directory)},
     module_path=module_path, parameters=parameters,
     inputs=[str(directory / file["file"]) for file in files])
call("compile")
call("measure", iterations=2)
call("outputs", directory=str(directory))
found = call("profile", directory=str(directory), iterations=2)["files"]
print(json.dumps([found, sorted(sys.modules)]))
"""


def test_the_worker_needs_no_framework(tmp_path, environment):
    name = "models/BERT_TINY_FP32_JAX_32XI32_BATCH1/.+"
    (case,) = catalog.select(catalog.all_benchmarks([]), name=name)
    arguments = [
        case.model.model_impl.module_path,
        json.dumps(dict(case.model.model_parameters)),
        json.dumps({**attrs.asdict(HOST_CPU), "accelerator_attributes": {}}),
    ]
    done = subprocess.run(
        [sys.executable, "-c", WORKER, str(tmp_path), *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    files, modules = json.loads(done.stdout.splitlines()[-1])
    loaded = {name.partition(".")[0] for name in modules}
    assert "jaxlib" in loaded
    assert not loaded & {"jax", "flax", "tensorflow", "keras", "torch"}
    assert array_files.load_all(tmp_path, "output")[0].std() > 0.1
    programs = {"program.mlirbc", "optimized.hlo.txt"}
    assert set(files) == {"trace.json.gz", "xla.xplane.pb", "operators.json", *programs}
    events = json.loads(gzip.decompress((tmp_path / "trace.json.gz").read_bytes()))["traceEvents"]
    names = Counter(event["name"] for event in events if event.get("ph") == "X")
    assert any(name.startswith("dot") or "fusion" in name for name in names)
    text = (tmp_path / "optimized.hlo.txt").read_text()
    assert "ENTRY" in text
    assert "metadata={" in text


@pytest.mark.parametrize("form", FORMS)
def test_an_export_holds_program_and_weights(exported, client, form):
    program, own_times_ms, entered = exported(form)
    assert entered == ["load", "trace", "lower", "load"]
    assert own_times_ms.keys() == {"load", "trace", "lower"}
    assert program.inputs == [None, None, 0, 1]  # unused weights stay in their places
    weights = list(program.weights())
    assert [weight.tolist() for weight in weights] == [[2, 2, 2], [0, 0]]
    module = stablehlo_of(program.path.read_bytes(), form)
    given = [np.array([1, 2, 3], np.float32), np.array([[4], [5]], np.int32)]
    outputs = client.compile(module).run([client.put(value) for value in (*weights, *given)])
    assert [client.fetch(output).tolist() for output in outputs] == [[2, 4, 6], [[5], [6]]]
    assert client.fetch(outputs[1]).dtype == np.int32


@pytest.mark.parametrize("form", FORMS)
def test_an_export_of_tensorflow_takes_inputs_first(exported, client, tmp_path, form):
    need("tensorflow")
    (tmp_path / "tf_model.py").write_text(TF_MODEL)
    program, _, _ = exported(form, module="tf_model")
    assert program.inputs == [0, 1, None, None]
    assert program.versions.keys() == {"tensorflow", "keras", "jaxlib"}
    given = [np.array([1, 2, 3], np.float32), np.array([[4], [5]], np.int32)]
    module = stablehlo_of(program.path.read_bytes(), form)
    arguments = [client.put(value) for value in (*given, *program.weights())]
    outputs = client.compile(module).run(arguments)
    assert [client.fetch(value).tolist() for value in outputs] == [[2.5, 5.5, 8.5], [[5], [6]]]


def test_weights_that_a_model_closes_over_are_constants(exported):
    program, _, _ = exported(kind="closed")
    assert program.inputs == [0, 1]
    assert not program.has_weights


def test_an_input_of_another_type_than_the_program_s_is_refused(exported):
    with pytest.raises(
        RuntimeError, match=r"parameter 3 .* int32\[2,1\], but its argument is int64"
    ):
        exported(y="int64")  # which JAX makes an int32 by default


def test_what_fails_in_the_export_process_fails_here(exported):
    with pytest.raises(RuntimeError, match="ValueError: no such checkpoint") as caught:
        exported(kind="broken")
    assert any("exported_model.py" in note for note in caught.value.__notes__)
    with pytest.raises(MemoryError, match="17 TiB"):
        exported(kind="too large")
    with pytest.raises(RuntimeError, match="the export process was killed by SIGABRT"):
        exported(kind="fatal")


def test_models_that_nothing_exports_are_unsupported(exported, tmp_path):
    (tmp_path / "numpy_model.py").write_text("create_model = object")
    with pytest.raises(UnsupportedError, match="numpy_model"):
        exported(module="numpy_model")


def test_an_export_process_that_can_not_start_is_reported(exported, monkeypatch):
    monkeypatch.setattr(child_process, "_MODULE", "comparative_benchmark.no_such_module")
    with pytest.raises(RuntimeError, match="the export process ended with exit code 1"):
        exported()


def test_arguments_are_compared_with_parameters_one_by_one():
    takes = [((2,), np.dtype(np.float32)), ((), np.dtype(ml_dtypes.bfloat16))]
    gets = [InputType(shape=(2,), dtype="float32"), InputType(shape=(), dtype="bfloat16")]
    check_parameters(takes, gets)
    with pytest.raises(TypeError, match="program parameters: expected 1, got 2"):
        check_parameters(takes, gets[:1])
    with pytest.raises(TypeError, match=r"parameter 0 .* float32\[2\], .* bfloat16\[\]"):
        check_parameters(takes, gets[::-1])


@pytest.mark.parametrize(
    "dtype",
    ["float32", "float16", "bfloat16", "float64", "int32", "int64", "int8", "uint8", "bool"],
)
@pytest.mark.parametrize("shape", [(), (3,), (2, 0), (4, 5)])
def test_arrays_come_back_as_they_were_put(client, dtype, shape):
    rng = np.random.default_rng(0)
    given = np.asarray(rng.integers(0, 100, shape)).astype(np.dtype(dtype))
    got = client.fetch(client.put(given))
    assert (got.dtype, got.shape) == (given.dtype, given.shape)
    assert got.tobytes() == given.tobytes()


def test_arrays_that_are_not_contiguous_keep_their_order(client):
    given = np.arange(6, dtype=np.float32).reshape(2, 3).T
    assert client.fetch(client.put(given)).tolist() == [[0, 3], [1, 4], [2, 5]]


def test_hlo_keeps_its_constants_through_text_and_proto(client):
    module = HloModule.from_text(TWO_OUTPUTS)
    assert module.parameters() == [((64,), np.dtype(np.float32))]
    again = HloModule.from_text(HloModule.from_proto(module.proto()).text())
    given = np.ones((64,), np.float32)
    total, wide = client.compile(again.stablehlo()).run([client.put(given)])
    assert client.fetch(total).tolist() == [1 + index / 2 for index in range(64)]
    assert client.fetch(wide).dtype == np.int64
    assert client.fetch(wide).tolist() == [1 + index // 2 for index in range(64)]


def test_text_that_is_no_hlo_is_refused():
    with pytest.raises(XlaError, match="expects"):
        HloModule.from_text("HloModule broken\nENTRY main { nonsense }")


def test_executables_are_cached_and_damaged_ones_compiled_again(client, tmp_path):
    module = HloModule.from_text(TWO_OUTPUTS).stablehlo()
    compiled = []

    def compile_():
        compiled.append(True)
        return client.compile(module)

    def get(key):
        cache = ExecutableCache(tmp_path / "cache")
        executable = cache.get(key, client, compile_)
        total, _ = executable.run([client.put(np.zeros((64,), np.float32))])
        assert client.fetch(total)[2] == 1
        return cache.hits, cache.misses

    assert get("one") == (0, 1)
    assert get("one") == (1, 0)
    assert get("other") == (0, 1)
    assert len(compiled) == 2
    (tmp_path / "cache" / "one.xla").write_bytes(b"damaged")
    assert get("one") == (0, 1)
    assert get("one") == (1, 0)


def test_without_a_directory_nothing_is_cached(client):
    module = HloModule.from_text(TWO_OUTPUTS).stablehlo()
    cache = ExecutableCache(None)
    for _ in range(2):
        cache.get("key", client, lambda: client.compile(module))
    assert (cache.hits, cache.misses) == (0, 2)


def test_keys_differ_where_a_part_does():
    parts = [(b"program", "stablehlo"), (b"program", "hlo-text"), (b"programs", "tablehlo")]
    assert len({digest_of_parts(*item) for item in parts}) == len(parts)
    assert digest_of_parts(*parts[0]) == digest_of_parts("program", b"stablehlo")


def test_weights_survive_the_disk(tmp_path):
    program = ExportedProgram(
        directory=tmp_path, form="stablehlo", inputs=[0, None], versions={"jax": "1"}
    )
    weights = [np.arange(3, dtype=np.float32).astype(ml_dtypes.bfloat16), np.array(1, np.int32)]
    program.write_weights(weights)
    assert program.has_weights
    assert [weight.dtype for weight in program.weights()] == [weight.dtype for weight in weights]
    program.drop_weights()
    assert list(program.weights()) == []


def test_another_jaxlib_is_refused_with_a_reason(monkeypatch):
    monkeypatch.setattr(pjrt, "xla_client", SimpleNamespace())
    with pytest.raises(UnsupportedError, match=r"private interface .*0\.10\.2.*pip install"):
        pjrt.Client("cpu")
