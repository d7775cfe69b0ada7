"""Exported programs run on what takes them, proved or agreed; what cannot be judged says why."""

import json

import pytest
from agreement_support import need
from framework_process import run_script
from tests_support import run_cbs

pytestmark = pytest.mark.frameworks

COUNTS = ("-w", "1", "-iter", "2")
ONNX = """
import sys
import numpy as np, onnx
from onnx import TensorProto as T, helper as h, numpy_helper as n

random = np.random.RandomState(0)
folder = sys.argv[1]

def weight(name, *sizes):
    return n.from_array((random.randn(*sizes) / 4).astype("float32"), name)

def save(name, nodes, output, weights=(), opset=20, domain=None):
    ins = [h.make_tensor_value_info("x", T.FLOAT, ["batch", 16])]
    outs = [h.make_tensor_value_info("y", *output)]
    opsets = [h.make_opsetid("", opset), *([h.make_opsetid(domain, 1)] if domain else [])]
    graph = h.make_graph(nodes, "g", ins, outs, list(weights))
    onnx.save(h.make_model(graph, opset_imports=opsets, ir_version=10), f"{folder}/{name}.onnx")

row = (T.FLOAT, ["batch", 16])
ones = n.from_array(np.ones(32, "float32"), "s")
save("net", [
    h.make_node("MatMul", ["x", "w"], ["a"]),
    h.make_node("Gelu", ["a"], ["b"]),
    h.make_node("LayerNormalization", ["b", "s"], ["c"], axis=-1),
    h.make_node("MatMul", ["c", "u"], ["y"]),
], (T.FLOAT, ["batch", 4]), [weight("w", 16, 32), weight("u", 32, 4), ones])
save("contrib", [
    h.make_node("MatMul", ["x", "w"], ["a"]),
    h.make_node("FastGelu", ["a"], ["y"], domain="com.microsoft"),
], (T.FLOAT, ["batch", 32]), [weight("w", 16, 32)], domain="com.microsoft")
save("dynamic", [h.make_node("NonZero", ["x"], ["y"])], (T.INT64, [2, "found"]))
save("draws", [h.make_node("RandomNormalLike", ["x"], ["y"])], row)
save("newer", [h.make_node("Relu", ["x"], ["y"])], row, opset=99)
save("foreign", [h.make_node("Foo", ["x"], ["y"], domain="my.own")], row, domain="my.own")
"""
# Prepares a program as a worker does, and says what came of it.
PREPARE = """
import json, pathlib, sys
from comparative_benchmark.worker.executor import Executor
from openxla.benchmark import brought
text, inputs, target = sys.argv[1:]
(case,) = brought.found(text, brought.Wanted(inputs=tuple(filter(None, [inputs])))).cases
answer = Executor(lambda _: None).handle({"command": "prepare", "arguments": dict(
    module_path=case.model.model_impl.module_path, parameters=dict(case.model.model_parameters),
    reference="comparative_benchmark.backends.program_reference:compute", directory=target)})
pathlib.Path(target, "answer.json").write_text(json.dumps(answer))
"""


@pytest.fixture
def prepared(tmp_path, environment):
    """Has a process of a framework make the truth of a program; returns its answer."""

    def prepare(name, inputs="", *, framework):
        arguments = [str(tmp_path / name), inputs, str(tmp_path)]
        run_script(PREPARE, arguments, environment, framework=framework)
        return json.loads((tmp_path / "answer.json").read_text())

    return prepare


@pytest.fixture
def program_run(tmp_path, environment):
    """Runs `cbs run PROGRAM` in the test's folder."""

    def run(*arguments, backend):
        return run_cbs(
            *arguments,
            *("--backend", backend, *COUNTS),
            directory=tmp_path,
            environment=environment,
        )

    return run


@pytest.fixture
def onnx_files(tmp_path, environment):
    need("onnx")
    run_script(ONNX, [str(tmp_path)], environment, framework="onnx")
    return tmp_path


def measured(run):
    """Metrics by competitor, of those that are ok."""
    return {
        f"{d['backend']}:{d['compiler']}": metrics
        for record in run.document["benchmarks"]
        for d in (record["definition"],)
        for metrics in record["metrics"].values()
        if record["status"] == "ok"
    }


def assert_proved(run, *competitors):
    assert run.code == 0, run.out + run.err
    found = measured(run)
    assert set(found) == set(competitors), run.statuses
    for metrics in found.values():
        assert metrics["verification"]["passed"]
        assert metrics["second_verification"]["passed"]
        assert "without_float64" not in metrics
    assert "agreed" not in run.out


@pytest.mark.usefixtures("onnx_files")
def test_an_onnx_file_runs_on_three_runtimes_against_a_float64_run(program_run):
    for package in ("onnxruntime", "openvino", "iree.compiler"):
        need(package)
    run = program_run("net.onnx", "--batch", "3", backend="onnxruntime,openvino,iree:llvm-cpu")
    assert_proved(run, "onnxruntime:default", "openvino:latency", "iree:llvm-cpu")


@pytest.mark.usefixtures("onnx_files")
def test_what_has_no_float64_run_is_agreed_and_says_so(program_run):
    need("onnxruntime")
    run = program_run("contrib.onnx", "--batch", "3", backend="onnxruntime")
    assert run.code == 0, run.out + run.err
    assert " agreed " in run.err
    assert "no proof" in run.out
    (metrics,) = measured(run).values()
    why = "com.microsoft.FastGelu is not an operator of ONNX"
    assert metrics["without_float64"] == f"the program has no float64 run: {why}"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("dynamic", "the shape of the output 'y' depends on values (NonZero)"),
        ("draws", "the program draws random numbers (RandomNormalLike)"),
        ("newer", "newer.onnx is of opset 99; ONNX "),
        ("foreign", "the program cannot be run on f32[2,16]: NotImplementedError: Node type 'Foo'"),
    ],
)
@pytest.mark.usefixtures("onnx_files")
def test_an_onnx_file_that_cannot_be_judged_says_why(prepared, name, words):
    answer = prepared(f"{name}.onnx", "f32[2,16]", framework="onnx")
    assert answer["type"] == "error"
    assert words in answer["message"]
