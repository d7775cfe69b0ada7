"""ONNX Runtime: the types that it computes in, the identity of its graphs, and tiny models."""

import json
import weakref
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from tests_support import run_cbs

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from comparative_benchmark.backends.api import (  # noqa: E402
    BackendContext,
    ModelDefinition,
    UnsupportedError,
    get_backend,
    load_object,
    untimed,
)
from comparative_benchmark.backends.exported_programs import ExportTask  # noqa: E402
from comparative_benchmark.backends.resident_programs import SingleProgram  # noqa: E402
from comparative_benchmark.onnxruntime import backend, graph, session  # noqa: E402
from openxla.benchmark import devices, user_models  # noqa: E402

pytestmark = pytest.mark.frameworks

SHAPE = [4, 4]
INSERTED = "InsertedPrecisionFreeCast_x"


def _model(nodes, types, weight=None, *, notes=""):
    """A graph from `x` to `y` with the given nodes and types of values; `w` is a weight."""
    weight = np.eye(4, dtype=np.float16) if weight is None else weight
    values = {
        name: helper.make_tensor_value_info(name, kind, SHAPE) for name, kind in types.items()
    }
    built = helper.make_graph(
        nodes,
        "graph",
        [values.pop("x")],
        [values.pop("y")],
        initializer=[numpy_helper.from_array(weight, "w")],
        value_info=list(values.values()),
        doc_string=notes,
    )
    return helper.make_model(built, producer_name=notes)


def _node(kind, inputs, output, **attributes):
    return helper.make_node(kind, inputs, [output], **attributes)


def _product():
    kinds = {"x": TensorProto.FLOAT16, "y": TensorProto.FLOAT16}
    return _model([_node("MatMul", ["x", "w"], "y")], kinds)


def _between_casts(kind):
    """ONNX Runtime's graph for a float16 operator without a kernel."""
    nodes = [
        _node("Cast", ["x"], "wide", to=TensorProto.FLOAT, name=INSERTED),
        _node(kind, ["wide", "v"] if kind == "MatMul" else ["wide"], "out"),
        _node("Cast", ["out"], "y", to=TensorProto.FLOAT16, name=INSERTED),
    ]
    half, wide = TensorProto.FLOAT16, TensorProto.FLOAT
    return _model(nodes, {"x": half, "y": half, "wide": wide, "out": wide, "v": wide})


def test_allocated_outputs_have_memory_of_their_own(tmp_path):
    kinds = {"x": TensorProto.FLOAT, "y": TensorProto.FLOAT}
    model = _model([_node("MatMul", ["x", "w"], "y")], kinds, np.eye(4, dtype=np.float32) * 2)
    model.ir_version, model.opset_import[0].version = 10, 21  # what every release reads
    onnx.save(model, tmp_path / "model.onnx")
    options = session.options("default", 1)
    program = session.SessionProgram(
        session.open_session(tmp_path / "model.onnx", "cpu", options), "cpu"
    )
    single = SingleProgram(program, [np.full(SHAPE, 1, np.float32)], allocates=True)
    first = single.run()
    single.replace_inputs([np.full(SHAPE, 3, np.float32)])
    second = single.run()
    assert [single.fetch(ran)[0].max() for ran in (first, second)] == [2, 6]
    # Bound outputs of the same program are in one place.
    bound = SingleProgram(program, [np.full(SHAPE, 1, np.float32)])
    bound.run()
    assert bound.fetch()[0].max() == 2


@pytest.mark.parametrize(
    "kind", [TensorProto.UINT16, TensorProto.INT16, TensorProto.UINT32, TensorProto.UINT64]
)
def test_outputs_of_all_integer_types_are_returned(tmp_path, kind):
    kinds = {"x": TensorProto.FLOAT, "y": kind}
    model = _model([_node("Cast", ["x"], "y", to=kind)], kinds)
    model.ir_version, model.opset_import[0].version = 10, 21
    onnx.save(model, tmp_path / "model.onnx")
    options = session.options("default", 1)
    opened = session.open_session(tmp_path / "model.onnx", "cpu", options)
    single = SingleProgram(session.SessionProgram(opened, "cpu"), [np.full(SHAPE, 3, np.float32)])
    single.run()
    (found,) = single.fetch()
    assert found.dtype == helper.tensor_dtype_to_np_dtype(kind)
    assert (found == 3).all()


def test_an_output_whose_shape_depends_on_values_is_unsupported(tmp_path):
    kinds = {"x": TensorProto.FLOAT, "y": TensorProto.INT64}
    model = _model([_node("NonZero", ["x"], "y")], kinds)
    model.graph.output[0].type.tensor_type.shape.dim[1].dim_param = "found"
    model.ir_version, model.opset_import[0].version = 10, 21
    onnx.save(model, tmp_path / "model.onnx")
    opened = session.open_session(tmp_path / "model.onnx", "cpu", session.options("default", 1))
    with pytest.raises(UnsupportedError, match="the shape of y depends on values"):
        session.SessionProgram(opened, "cpu").outputs()


def _context(work_dir, compiler="default", options=(), exported=()):
    return BackendContext(
        compiler=compiler,
        options=options,
        device=devices.HOST_CPU,
        threads=1,
        work_dir=work_dir,
        phase=untimed,
        exported=dict(exported),
    )


@pytest.mark.parametrize(
    ("model", "exported"),
    [
        (SimpleNamespace(write_onnx=None), {}),
        (SimpleNamespace(module_path="of a case"), {"onnx": (Path("model.onnx"),)}),
    ],
)
def test_a_recipe_is_not_dropped_for_a_program_that_is_a_file(tmp_path, model, exported):
    made = backend.OnnxRuntime(_context(tmp_path, options=("int8dq-tensor",), exported=exported))
    made.load(model, [])
    with pytest.raises(UnsupportedError, match="not to exported programs: omit the recipe"):
        made.compile()


@pytest.mark.parametrize(
    ("package", "compiler", "weights"),
    [("onnxruntime", "default", "optimized.onnx.data"), ("openvino", "latency", "model.bin")],
)
def test_a_users_weights_are_kept_whatever_their_file_is_called(
    tmp_path, package, compiler, weights
):
    pytest.importorskip(package)
    info, folder = get_backend(package), tmp_path / "user"
    folder.mkdir()
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 64]) for name in "xy")
    weight = numpy_helper.from_array(np.eye(64, dtype=np.float32) * 2, "w")
    built = helper.make_graph([_node("MatMul", ["x", "w"], "y")], "graph", [x], [y], [weight])
    model = helper.make_model(built, ir_version=10, opset_imports=[helper.make_opsetid("", 21)])
    file = folder / "net.onnx"
    onnx.save_model(model, str(file), save_as_external_data=True, location=weights)
    with (folder / weights).open("ab") as more:
        more.write(b"and what no copy of the weights would hold")
    content = (folder / weights).read_bytes()
    wanted = user_models.ModelOptions(inputs=("f32[3,64]",))
    (case,) = user_models.find_cases(str(file), wanted).cases
    definition, inputs = ModelDefinition.of(case.model), (np.ones((3, 64), np.float32),)

    context = _context(tmp_path / "work", compiler)
    context.work_dir.mkdir()
    made = load_object(info.implementation)(context)
    made.load(definition.create(), inputs)
    made.compile()
    (output,) = made.fetch(made.dispatch())
    np.testing.assert_array_equal(output, np.full((3, 64), 2, np.float32))
    assert (folder / weights).read_bytes() == content

    directory = tmp_path / "reproducer"
    directory.mkdir()
    task = ExportTask(context=context, definition=definition, inputs=inputs, directory=directory)
    exported = load_object(info.reproducer)(task)
    assert {path.name for path in directory.iterdir()} == set(exported.files)
    assert (folder / weights).read_bytes() == content


def test_no_graph_of_the_exporter_is_left_when_a_file_is_written(tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    from comparative_benchmark.backends.frameworks import torch_export, torch_modules

    made, alive = [], []

    class Graph:
        def __init__(self):
            self.model = SimpleNamespace(metadata_props={})
            made.append(weakref.ref(self))

        def save(self, path, external_data):
            path.touch()

    signature = SimpleNamespace(user_outputs=[])
    program = SimpleNamespace(graph=SimpleNamespace(nodes=[]), graph_signature=signature)
    monkeypatch.setattr(torch.onnx, "export", lambda *_, **__: Graph())
    monkeypatch.setattr(torch_modules, "export_programs", lambda *_: ([program], None))
    monkeypatch.setattr(torch_export.gc, "collect", lambda: alive.extend(ref() for ref in made))
    torch_export.write_onnx(None, [], tmp_path, untimed)
    assert alive == [None]


def test_products_between_inserted_casts_are_widened():
    exported, run = graph.summarize(_product()), graph.summarize(_between_casts("MatMul"))
    assert exported.products("float16") == 1
    assert run.products("float") == 1
    assert graph.has_widened_products(exported, run)
    assert graph.widened(exported, run) == {"MatMul": 1}


def test_a_softmax_between_inserted_casts_is_told_but_no_product():
    half = TensorProto.FLOAT16
    exported = graph.summarize(_model([_node("Softmax", ["x"], "y")], {"x": half, "y": half}))
    run = graph.summarize(_between_casts("Softmax"))
    assert not graph.has_widened_products(exported, run)
    assert graph.widened(exported, run) == {"Softmax": 1}


def test_what_the_model_itself_computes_in_float32_is_not_widened():
    nodes = [
        _node("Cast", ["x"], "wide", to=TensorProto.FLOAT, name="node_to_1"),
        _node("MatMul", ["wide", "v"], "out"),
        _node("Cast", ["out"], "y", to=TensorProto.FLOAT16, name="node_to_2"),
    ]
    half, wide = TensorProto.FLOAT16, TensorProto.FLOAT
    kinds = {"x": half, "y": half, "wide": wide, "out": wide, "v": wide}
    summary = graph.summarize(_model(nodes, kinds))
    assert summary.products("float") == 1
    assert summary.inserted_casts == 0
    assert not graph.has_widened_products(summary, summary)
    assert graph.widened(summary, summary) == {}


def test_operators_inside_a_branch_count():
    half = TensorProto.FLOAT16
    inner = _product().graph
    outer = _model(
        [helper.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=inner)],
        {"x": half, "y": half, "c": TensorProto.BOOL},
    )
    assert graph.summarize(outer).products("float16") == 2


def test_a_fingerprint_is_of_what_is_computed(tmp_path):
    def of(model):
        return graph.fingerprint(model, tmp_path)

    first, noted = _product(), _product()
    noted.graph.node[0].doc_string = "model.py:17"
    noted.graph.node[0].metadata_props.add(key="stack_trace", value="model.py:17")
    noted.producer_version = "2.13"
    assert of(first) == of(noted)
    assert noted.graph.node[0].doc_string  # left as it was

    kinds = {"x": TensorProto.FLOAT16, "y": TensorProto.FLOAT16}
    other_weight = _model([_node("MatMul", ["x", "w"], "y")], kinds, np.ones((4, 4), np.float16))
    other_operator = _model([_node("Add", ["x", "w"], "y")], kinds)
    assert len({of(first), of(other_weight), of(other_operator)}) == 3


def test_a_fingerprint_does_not_know_names_or_the_order_of_independent_nodes(tmp_path):
    kinds = {"x": TensorProto.FLOAT16, "y": TensorProto.FLOAT16}

    def fingerprint(first, second, *, swapped=False):
        branches = [_node("Relu", ["x"], first, name="a"), _node("Neg", ["x"], second, name="b")]
        nodes = [*(branches[::-1] if swapped else branches), _node("Sub", [first, second], "y")]
        return graph.fingerprint(_model(nodes, kinds), tmp_path)

    one = fingerprint("p", "q")
    assert fingerprint("token_26", "token_27", swapped=True) == one
    operands = [_node("Relu", ["x"], "p"), _node("Neg", ["x"], "q"), _node("Sub", ["q", "p"], "y")]
    assert graph.fingerprint(_model(operands, kinds), tmp_path) != one


def test_a_fingerprint_holds_weights_that_are_in_a_file_next_to_it(tmp_path):
    digests = []
    for scale in (1.0, 2.0):
        kinds = {"x": TensorProto.FLOAT, "y": TensorProto.FLOAT}
        weight = np.full((64, 64), scale, np.float32)
        path = tmp_path / f"{scale}.onnx"
        onnx.save_model(
            _model([_node("MatMul", ["x", "w"], "y")], kinds, weight),
            str(path),
            save_as_external_data=True,
            location="weights.data" if scale == 1.0 else "other.data",
        )
        model = graph.load(path)
        assert model.graph.initializer[0].external_data
        digests.append(graph.fingerprint(model, tmp_path))
    assert digests[0] != digests[1]


def test_the_profile_counts_the_measured_iterations_only():
    def event(name, ts, dur, op=None):
        return {
            "name": name,
            "ts": ts,
            "dur": dur,
            "cat": "Node" if op else "Session",
            "args": {"op_name": op} if op else {},
        }

    events = [
        event("model_run", 0, 500),
        event("first_kernel_time", 1, 400, "MatMul"),
        event("model_run", 1000, 50),
        event("first_kernel_time", 1001, 30, "MatMul"),
        event("second_kernel_time", 1032, 10, "Softmax"),
    ]
    table = session.operator_table(events, 1)
    assert "1 iterations, 0.040 ms" in table
    rows = [line.split() for line in table.splitlines()]
    assert ["75.0%", "30.0", "1", "MatMul"] in rows
    assert ["25.0%", "10.0", "1", "second"] in rows


TINY = (
    "models/(BERT_TINY_.+_PT_.+_BATCH1|(RESNET|LLAMA)_TINY_FP32_PT_.+_BATCH1"
    "|GPT2_TINY_GREEDY_FP32_PT_1X.+)/inputs/INPUT_DATA_MODEL_DEFAULT"
)
BERT = "models/BERT_TINY_FP(16|32)_PT_.+_BATCH1/inputs/INPUT_DATA_MODEL_DEFAULT"


@pytest.fixture(scope="module")
def tiny(tmp_path_factory, environment):
    """BERT in three types, and further models in float32, including one that generates."""
    return _run("onnxruntime", TINY, tmp_path_factory.mktemp("default"), environment)


@pytest.fixture(scope="module")
def widened(tmp_path_factory, environment):
    """BERT, with permission to compute 16-bit models in float32."""
    directory = tmp_path_factory.mktemp("widened")
    return _run("onnxruntime:default+widened", BERT, directory, environment)


def _run(backend, name, directory, environment):
    return run_cbs(
        *("--backend", backend, "-name", name),
        # One process: most of the time would go to importing PyTorch.
        *("-w", "1", "-iter", "2", "--profile", "--run-in-process"),
        directory=directory,
        environment=environment,
    )


def _records(run, data_type):
    return [
        record
        for record in run.document["benchmarks"]
        if f"_{data_type}_" in record["definition"]["model"]
    ]


def test_float32_is_right_and_says_what_was_run(tiny):
    records = _records(tiny, "FP32")
    assert len(records) == 4, tiny.out + tiny.err
    for record in records:
        assert record["status"] == "ok", record
        metrics = record["metrics"]["compiler_level"]
        assert 0 < metrics["verification"]["relative_rmse"] < 1e-5
        for phase in ("import", "load", "h2d", "trace", "lower", "compile", "first_run", "d2h"):
            assert metrics["phases"][phase]["ms"] > 0
        program = metrics["program"]
        assert program["weights"] == "frozen"
        assert len(program["artifact_sha256"]) == 64
        assert program["artifact_size_bytes"] > 1000
        assert program["notes"]["parameters_size_bytes"] > 10_000
        for name in ("model",) if program["notes"]["graphs"] == 1 else ("prefill", "decode"):
            told = program["notes"][name]
            assert told["widened"] == {}
            assert told["inserted_casts"] == 0
            assert "float16" not in told["operators"]
            assert "BatchNormalization" not in told["operators"]["float"]  # folded


def test_a_model_that_generates_is_two_graphs_and_measured_in_parts(tiny):
    [record] = [r for r in _records(tiny, "FP32") if "GREEDY" in r["definition"]["model"]]
    metrics = record["metrics"]["compiler_level"]
    assert metrics["program"]["notes"]["graphs"] == 2
    assert metrics["generation"]["prefill_ms"] > 0
    assert metrics["generation"]["decode_ms_per_token"] > 0


@pytest.mark.parametrize("data_type", ["FP16", "BF16"])
def test_sixteen_bits_are_computed_in_sixteen_bits_or_not_at_all(tiny, data_type):
    [record] = _records(tiny, data_type)
    if record["status"] == "ok":  # a CPU with such kernels
        operators = record["metrics"]["compiler_level"]["program"]["notes"]["model"]["operators"]
        assert "MatMul" not in operators.get("float", {})
    else:
        assert record["status"] == "unsupported", record
        assert "ONNX Runtime" in record["reason"]


def test_widening_has_to_be_asked_for_and_is_told(tiny, widened):
    [plain], [asked] = _records(tiny, "FP16"), _records(widened, "FP16")
    assert asked["status"] == "ok", asked
    notes = asked["metrics"]["compiler_level"]["program"]["notes"]["model"]
    if plain["status"] == "unsupported":
        assert "default+widened" in plain["reason"]
        assert set(notes["widened"]) & graph.PRODUCTS
        assert notes["inserted_casts"] > 0


def test_the_same_graph_comes_out_of_two_exports_and_no_other(tiny, widened):
    def digests(run):
        return {
            record["definition"]["model"]: metrics["program"]["artifact_sha256"]
            for record in _records(run, "FP32")
            for metrics in record["metrics"].values()
        }

    [(model, again)] = digests(widened).items()
    assert digests(tiny)[model] == again
    assert len(set(digests(tiny).values())) == 4


def test_without_cuda_a_gpu_is_unsupported_with_a_reason(tmp_path, monkeypatch):
    import onnxruntime

    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CPUExecutionProvider"])
    context = BackendContext(
        compiler="cuda",
        options=(),
        device=devices.HOST_GPU,
        threads=1,
        work_dir=tmp_path,
        phase=untimed,
    )
    with pytest.raises(UnsupportedError, match="install onnxruntime-gpu instead"):
        backend.OnnxRuntime(context)


@pytest.mark.parametrize(("device", "options"), [("cuda", {"use_tf32": "0"}), ("cpu", {})])
def test_a_session_on_a_gpu_is_told_to_use_no_tf32(device, options, monkeypatch, tmp_path):
    import onnxruntime

    opened = []

    def open_session(*_, **given):
        opened.append(given["providers"])
        return SimpleNamespace(get_providers=lambda: [session.PROVIDERS[device]])

    monkeypatch.setattr(onnxruntime, "InferenceSession", open_session)
    session.open_session(tmp_path, device, session.options("default", 1))
    assert opened == [[(session.PROVIDERS[device], options)]]


def test_a_graph_that_would_run_on_the_cpu_is_not_measured_as_one_on_a_gpu(tmp_path, monkeypatch):
    import onnxruntime

    float_ = {"x": TensorProto.FLOAT, "y": TensorProto.FLOAT}
    path = tmp_path / "model.onnx"
    model = _model([_node("Relu", ["x"], "y")], float_)
    model.ir_version, model.opset_import[0].version = 10, 17
    onnx.save(model, path)
    # ONNX Runtime's own refusal: Azure's provider has no kernel for this operator.
    monkeypatch.setitem(session.PROVIDERS, "cuda", "AzureExecutionProvider")
    monkeypatch.setitem(session._PROVIDER_OPTIONS, "cuda", {})
    with pytest.raises(UnsupportedError, match=r"run part of the graph on the CPU: .*disabled"):
        session.open_session(path, "cuda", session.options("cuda", 1))
    # If a provider cannot be loaded, a session opens without it.
    opened = SimpleNamespace(get_providers=lambda: ["CPUExecutionProvider"])
    monkeypatch.setattr(onnxruntime, "InferenceSession", lambda *_, **__: opened)
    with pytest.raises(UnsupportedError, match="with CPUExecutionProvider instead of Azure"):
        session.open_session(path, "cuda", session.options("cuda", 1))


def test_the_profiler_tells_nodes(tiny):
    tables = [path for path in tiny.output.parent.rglob("operators.txt") if "RESNET" in str(path)]
    assert len(tables) == 1
    assert "Conv" in tables[0].read_text()
    document = json.loads(tables[0].with_name("trace.json").read_text())
    spans = [event["name"] for event in document["traceEvents"] if event.get("ph") == "X"]
    assert spans.count("model_run") > 1
