"""Exported programs run on every backend that accepts them; refusals give the reason."""

import json
import shutil

import numpy as np
import pytest
from agreement_support import need
from framework_process import run_script
from tests_support import run_cbs

from openxla.benchmark import user_models

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

def save(name, nodes, output, weights=(), opset=20, domain=None, ir=10):
    ins = [h.make_tensor_value_info("x", T.FLOAT, ["batch", 16])]
    outs = [h.make_tensor_value_info("y", *output)]
    opsets = [h.make_opsetid("", opset), *([h.make_opsetid(domain, 1)] if domain else [])]
    graph = h.make_graph(nodes, "g", ins, outs, list(weights))
    onnx.save(h.make_model(graph, opset_imports=opsets, ir_version=ir), f"{folder}/{name}.onnx")

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
scales = [
    n.from_array(np.float32(0.25), "s"), n.from_array(np.float32(0.5), "t"),
    n.from_array(np.uint8(128), "z"), n.from_array(np.int8(0), "o"),
    n.from_array(random.randint(-9, 9, (16, 32)).astype("int8"), "w"),
]
save("ties", [
    h.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
    h.make_node("QLinearMatMul", ["q", "s", "z", "w", "t", "o", "s", "z"], ["y"]),
], (T.UINT8, ["batch", 32]), scales)
save("small", [
    h.make_node("DequantizeLinear", ["w", "t", "o"], ["d"]),
    h.make_node("MatMul", ["x", "d"], ["y"]),
], (T.FLOAT, ["batch", 32]), scales)
save("draws", [h.make_node("RandomNormalLike", ["x"], ["y"])], row)
save("future", [h.make_node("Relu", ["x"], ["y"])], row, ir=99)
save("newer", [h.make_node("Relu", ["x"], ["y"])], row, opset=99)
save("foreign", [h.make_node("Foo", ["x"], ["y"], domain="my.own")], row, domain="my.own")
"""
# Prepares a program as a worker does, and prints the outcome.
PREPARE = """
import json, pathlib, sys
from comparative_benchmark.engine.worker.executor import Executor
from openxla.benchmark import user_models
text, inputs, target = sys.argv[1:]
wanted = user_models.ModelOptions(inputs=tuple(filter(None, inputs.split("; "))))
(case,) = user_models.find_cases(text, wanted).cases
answer = Executor(lambda _: None).handle({"command": "prepare", "id": 0, "arguments": dict(
    module_path=case.model.model_impl.module_path, parameters=dict(case.model.model_parameters),
    reference="comparative_benchmark.backends.exported_programs:compute", directory=target)})
pathlib.Path(target, "answer.json").write_text(json.dumps(answer))
"""


# Prepares a program while its second route is wrong, by 0.1 %.
WRONG_ROUTES = {
    "torch": """
from openxla.benchmark.user_models.programs.in_torch_export import TorchProgram
owner, name = TorchProgram, "_in_float64"
right = owner._in_float64
def wrong(self, module, inputs):
    found = right(self, module, inputs)
    return found if module is self.module else [value * 1.001 for value in found]
""",
    "jax": """
from openxla.benchmark.user_models.programs import in_stablehlo
owner, name = in_stablehlo, "interpreted"
right = owner.interpreted
def wrong(module, inputs):
    return [value * 1.001 for value in right(module, inputs)]
""",
}


@pytest.fixture
def prepared(tmp_path, environment):
    """Has a process of a framework make the truth of a program; returns its answer."""

    def prepare(name, inputs="", *, framework, wrong_route=False):
        arguments = [str(tmp_path / name), inputs, str(tmp_path)]
        script = PREPARE
        if wrong_route:
            planted = f"{WRONG_ROUTES[framework]}\nsetattr(owner, name, wrong)\n"
            script = f"{planted}{PREPARE}\nsetattr(owner, name, right)\n"
        run_script(script, arguments, environment, framework=framework)
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


def assert_in_doubt(answer, routes):
    assert answer["type"] != "error", answer
    why = f"its truth is in doubt: {routes} differ by 0.001 times the scale at the program"
    assert answer["without_float64"].startswith(why)
    assert answer["truth_check"]["in_doubt"][0]["operator"] == "the program"


@pytest.mark.usefixtures("onnx_files")
def test_an_onnx_file_runs_on_three_runtimes_against_a_float64_run(program_run):
    for package in ("onnxruntime", "openvino", "iree.compiler"):
        need(package)
    run = program_run("net.onnx", "--batch", "3", backend="onnxruntime,openvino,iree:llvm-cpu")
    assert_proved(run, "onnxruntime:default", "openvino:latency", "iree:llvm-cpu")


@pytest.mark.usefixtures("onnx_files")
def test_what_has_no_float64_run_is_agreed_and_reports_it(program_run):
    need("onnxruntime")
    run = program_run("contrib.onnx", "--batch", "3", backend="onnxruntime")
    assert run.code == 0, run.out + run.err
    assert " agreed " in run.err
    assert "proves less than a float64 run" in " ".join(run.out.split())
    (metrics,) = measured(run).values()
    why = "com.microsoft.FastGelu is not an ONNX operator"
    assert metrics["without_float64"] == f"the program has no float64 run: {why}"


@pytest.mark.usefixtures("onnx_files")
def test_a_quantised_onnx_file_gets_runs_with_other_scales(prepared, tmp_path):
    """Half of its outputs are ties."""
    answer = prepared("ties.onnx", "f32[8,16]", framework="onnx")
    assert "the program is quantised (QLinearMatMul)" in answer["without_float64"]
    assert answer["without_neighbours"] is None
    own, runs = (np.load(tmp_path / name / "output_0.npy") for name in ("reference", "neighbours"))
    assert np.mean((runs != own).any(axis=0)) > 0.2


@pytest.mark.usefixtures("onnx_files")
def test_weights_of_few_bits_do_not_round(prepared):
    assert prepared("small.onnx", "f32[8,16]", framework="onnx")["without_float64"] is None


def test_an_operator_that_the_importer_of_iree_does_not_know_is_unsupported_by_name(tmp_path):
    need("iree.compiler")
    from comparative_benchmark.backends.api import UnsupportedError
    from comparative_benchmark.iree.program import ImportedProgram, compile_program

    text = """
    func.func @main(%x: !torch.vtensor<[2],f32>) -> !torch.vtensor<[2],f32> attributes {
        torch.onnx_meta.ir_version = 8 : si64, torch.onnx_meta.opset_version = 17 : si64} {
      %y = torch.operator "onnx.Nonsense"(%x)
          : (!torch.vtensor<[2],f32>) -> !torch.vtensor<[2],f32>
      return %y : !torch.vtensor<[2],f32>
    }
    """
    given = ImportedProgram(mlir=text.encode(), input_type="onnx", parameters={})
    with pytest.raises(UnsupportedError, match="does not support the operator Nonsense"):
        compile_program(given, tmp_path / "out.vmfb", data_tiling=False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("dynamic", "the shape of output 'y' depends on values (NonZero)"),
        ("draws", "the program draws random numbers (RandomNormalLike)"),
        ("newer", "newer.onnx uses opset 99, but ONNX "),
        ("foreign", "f32[2,16]; ONNX's reference evaluator: NotImplementedError: Node type 'Foo'"),
    ],
)
@pytest.mark.usefixtures("onnx_files")
def test_an_onnx_file_that_cannot_be_judged_gives_the_reason(prepared, name, words):
    answer = prepared(f"{name}.onnx", "f32[2,16]", framework="onnx")
    assert answer["type"] == "error"
    assert words in answer["message"]


JAX = """
import sys
import jax, jax.numpy as jnp, numpy as np
from jax import export

folder = sys.argv[1]
w = np.random.RandomState(0).randn(16, 32).astype("float32")

@jax.jit
def f(x, ids):
    return jax.nn.softmax(jax.nn.gelu(x @ w)), jnp.take(w, ids, axis=0).sum(-1)

def forms(batch):
    return jax.ShapeDtypeStruct((batch, 16), "float32"), jax.ShapeDtypeStruct((batch, 3), "int32")

fixed = export.export(f)(*forms(4))
(batch,) = export.symbolic_shape("batch")
files = {
    "net.jax_export": export.export(f)(*forms(batch)).serialize(),
    "complex.jax_export": export.export(
        jax.jit(lambda x: jax.lax.complex(x, -x) * jax.lax.complex(x, x))
    )(forms(4)[0]).serialize(),
    "net.mlirbc": fixed.mlir_module_serialized,
    "net.mlir": f.lower(*forms(4)).as_text().encode(),
    "cut.mlirbc": bytes(fixed.mlir_module_serialized)[:2000],
    "cut.jax_export": bytes(fixed.serialize())[:1000],
    "erf.mlir": jax.jit(
        lambda x: jax.scipy.special.erf(x) + jnp.fft.rfft(x, 31)
    ).lower(forms(4)[0]).as_text().encode(),
    "sizes.mlir": f.lower(*forms(4)).as_text().replace("4x16xf32", "?x16xf32").encode(),
    "bits.mlir": jax.jit(
        lambda x: x * jax.lax.bitcast_convert_type(x, jnp.int32).astype("float32")
    ).lower(forms(4)[0]).as_text().encode(),
}
for name, content in files.items():
    with open(f"{folder}/{name}", "wb") as file:
        file.write(content)
"""
TORCH = """
import sys
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(50, 16)
        self.down = torch.nn.Linear(16, 4)

    def forward(self, ids, x, mask):
        hidden = (1 - mask.to(torch.float32))[..., None] * -3.0
        return {"y": self.down(torch.nn.functional.gelu(self.table(ids) + x) + hidden)}

class Draws(torch.nn.Module):
    def forward(self, x):
        return x + torch.rand_like(x)

class Filled(torch.nn.Module):
    def forward(self, x):
        mask = torch.full((16, 16), float("-inf")).triu(1)
        places = torch.arange(16) / 3 + torch.linspace(0, 1, 16)
        return (x @ x.mT + mask[:8, :8]).softmax(-1) @ (x + places.sin() + torch.zeros(16))

folder = sys.argv[1]
torch.manual_seed(0)
batch = {0: torch.export.Dim("batch")}
ids, x = torch.zeros(2, 8, dtype=torch.int64), torch.randn(2, 8, 16)
net = torch.export.export(
    Net().eval(), (ids, x), {"mask": torch.ones_like(ids)}, dynamic_shapes=(batch, batch, batch)
)
torch.export.save(net, f"{folder}/net.pt2")
torch.export.save(torch.export.export(Draws(), (x,)), f"{folder}/draws.pt2")
torch.export.save(torch.export.export(Filled(), (x,)), f"{folder}/filled.pt2")
whole = open(f"{folder}/net.pt2", "rb").read()
open(f"{folder}/cut.pt2", "wb").write(whole[: len(whole) // 2])
"""
TENSORFLOW = """
import pathlib, sys
import keras, tensorflow as tf

folder = sys.argv[1]
keras.utils.set_random_seed(0)
layers = [
    keras.layers.Conv2D(4, 3, activation="relu"),
    keras.layers.GlobalAveragePooling2D(),
    keras.layers.Dense(5, activation="gelu"),
]
keras.Sequential([keras.Input((8, 8, 3)), *layers]).export(f"{folder}/saved", verbose=False)
content = tf.lite.TFLiteConverter.from_saved_model(f"{folder}/saved").convert()
pathlib.Path(folder, "net.tflite").write_bytes(content)
pathlib.Path(folder, "cut.tflite").write_bytes(content[:200])

@tf.function(input_signature=[tf.TensorSpec((4, 8), kind) for kind in (tf.float32, tf.bfloat16)])
def mixed(x, y):
    return tf.nn.softmax(x) * tf.cast(y, tf.float32)

tf.saved_model.save(tf.Module(), f"{folder}/mixed", signatures=mixed)
"""


@pytest.fixture
def files_of(tmp_path, environment):
    """Has a framework write its exported programs."""

    def write(script, framework):
        need(framework)
        run_script(script, [str(tmp_path)], environment, framework=framework)
        return tmp_path

    return write


def test_jax_programs_are_widened_and_what_is_none_gives_the_reason(files_of, prepared, tmp_path):
    files_of(JAX, "jax")
    for name, inputs in (
        ("net.mlir", ""),
        ("net.mlirbc", "f32[4,16]; i32[4,3]<9"),
        ("net.jax_export", ""),
    ):
        answer = prepared(name, inputs, framework="jax")
        assert answer["type"] != "error", answer
        assert answer["without_float64"] is None
        assert answer["truth_check"]["routes"] == ["XLA", "StableHLO's interpreter"]
        assert [file["dtype"] for file in answer["files"]["truth"]] == ["f64", "f64"]
    complex_numbers = prepared("complex.jax_export", framework="jax")
    assert [file["dtype"] for file in complex_numbers["files"]["truth"]] == ["complex128"]
    # As text, with operations of CHLO.
    assert "chlo.erf" in (tmp_path / "erf.mlir").read_text()
    erf = prepared("erf.mlir", framework="jax")
    assert erf["without_float64"] is None
    assert [file["dtype"] for file in erf["files"]["truth"]] == ["complex128"]
    doubted = prepared("net.mlir", "f32[4,16]; i32[4,3]<9", framework="jax", wrong_route=True)
    assert_in_doubt(doubted, "XLA and StableHLO's interpreter")
    agreed = prepared("bits.mlir", framework="jax")
    assert "bitcast_convert operates on the bits" in agreed["without_float64"]
    for name, inputs, words in (
        ("cut.mlirbc", "", "is not a valid StableHLO program: "),
        ("cut.jax_export", "", "is not a valid jax.export program: "),
        ("sizes.mlir", "", "has a dynamic size; export the program with fixed sizes"),
        ("net.mlir", "f32[4,16]", "net.mlir takes argument 0 f32[4,16], argument 1 i32[4,3]; pass"),
    ):
        answer = prepared(name, inputs, framework="jax")
        assert answer["type"] == "error", name
        assert words in answer["message"]


def test_torch_programs_are_widened_and_what_is_none_gives_the_reason(files_of, prepared):
    files_of(TORCH, "torch")
    inputs = "i64[3,8]<50; f32[3,8,16]; i64[3,8]<2"
    answer = prepared("net.pt2", inputs, framework="torch")
    assert answer["type"] != "error", answer
    assert answer["without_float64"] is None
    assert answer["truth_check"]["routes"] == ["PyTorch", "PyTorch's decompositions"]
    filled = prepared("filled.pt2", "f32[2,8,16]", framework="torch")
    assert filled["without_float64"] is None, filled
    doubted = prepared("net.pt2", inputs, framework="torch", wrong_route=True)
    assert_in_doubt(doubted, "PyTorch and PyTorch's decompositions")
    for name, given, words in (
        ("cut.pt2", inputs, "is not a valid torch.export program"),
        ("draws.pt2", "f32[2,8,16]", "it draws random numbers"),
        ("net.pt2", "f32[3,8]", "net.pt2 takes ids i64[s"),
    ):
        answer = prepared(name, given, framework="torch")
        assert answer["type"] == "error", name
        assert words in answer["message"]


def test_tensorflow_programs_are_widened_or_agreed(files_of, prepared):
    need("ai_edge_litert")
    folder = files_of(TENSORFLOW, "tensorflow")
    answer = prepared("saved", framework="tensorflow")
    assert answer["type"] != "error", answer
    assert answer["without_float64"] is None
    assert answer["truth_check"]["routes"] == ["TensorFlow", "TensorFlow by XLA"]
    mixed = prepared("mixed", framework="tensorflow")
    assert mixed["without_float64"] is None, mixed
    agreed = prepared("net.tflite", framework="tensorflow")
    assert "TFLite has no float64 kernels" in agreed["without_float64"]
    assert "is not a valid TFLite file" in prepared("cut.tflite", framework="tensorflow")["message"]
    for file in (folder / "saved" / "variables").iterdir():
        file.unlink()
    broken = prepared("saved", framework="tensorflow")
    assert "is not a valid SavedModel" in broken["message"]


@pytest.mark.parametrize(
    ("script", "framework", "name", "backends"),
    [
        (JAX, "jax", "net.mlir", ("xla_hlo:stablehlo", "iree:llvm-cpu")),
        (TENSORFLOW, "tensorflow", "saved", ("tf_xla:xla", "openvino:latency")),
    ],
)
def test_programs_run_without_the_source(files_of, program_run, script, framework, name, backends):
    for backend in backends:
        need(
            {"iree": "iree.compiler", "xla_hlo": "jaxlib", "tf_xla": "keras"}.get(
                backend.partition(":")[0], "openvino"
            )
        )
    files_of(script, framework)
    assert_proved(program_run(name, backend=",".join(backends)), *backends)


def test_a_tflite_file_is_agreed_on_two_runtimes(files_of, program_run):
    for package in ("ai_edge_litert", "openvino"):
        need(package)
    files_of(TENSORFLOW, "tensorflow")
    run = program_run("net.tflite", backend="tflite,openvino")
    assert run.code == 0, run.out + run.err
    assert set(measured(run)) == {"tflite:native", "openvino:latency"}
    assert "with an output that agrees with a plain run (no float64 run exists)" in run.out


TORCHSCRIPT = """
import sys
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 3)
        self.norm = torch.nn.BatchNorm2d(4)
        self.register_buffer("shift", torch.arange(4.0))

    def forward(self, x, scale: float = 2.0):
        y = torch.relu(self.norm(self.conv(x))).mean((2, 3)).to(torch.float32)
        return {"y": y * scale + torch.zeros(y.shape[0], 4), "z": y + self.shift.to(torch.float32)}

class Plain(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 3)

    def forward(self, x):
        return torch.relu(self.conv(x))

class Branches(torch.nn.Module):
    def forward(self, x):
        if bool(x.sum() > 0):
            return torch.tanh(x)
        return torch.sin(x)

class Draws(torch.nn.Module):
    def forward(self, x):
        return x + torch.rand_like(x)

folder = sys.argv[1]
torch.manual_seed(0)
net, x = Net().eval(), torch.randn(2, 3, 8, 8)
torch.jit.script(net).save(f"{folder}/script.pt")
torch.jit.trace(net, x, strict=False).save(f"{folder}/trace.pth")
torch.jit.trace(Plain().eval(), x).save(f"{folder}/plain.pth")
for name, module in (("branches", Branches()), ("draws", Draws())):
    torch.jit.script(module).save(f"{folder}/{name}.pt")
from torch.utils import bundled_inputs
given = [(bundled_inputs.bundle_randn(2, 3, 8, 8), 2.0)]
bundled_inputs.bundle_inputs(torch.jit.script(net), given).save(f"{folder}/bundled.pt")
whole = open(f"{folder}/script.pt", "rb").read()
open(f"{folder}/cut.torchscript", "wb").write(whole[: len(whole) // 2])
torch.save(net, f"{folder}/whole.pt")
torch.save({"model": net.state_dict(), "epoch": 3, "rate": torch.tensor(0.1)}, f"{folder}/state.pt")
torch.save(net.state_dict(), f"{folder}/old.pt", _use_new_zipfile_serialization=False)
"""
# TorchScript compiles source, which must be in a file.
FROM_A_FILE = """
import pathlib, runpy, sys
path = pathlib.Path(sys.argv[1], "networks.py")
path.write_text({source!r})
runpy.run_path(str(path), run_name="networks")
"""
# Compares what exporters and Dynamo get with what the interpreter computes, and a module in float64
# with the module that the archive was made of.
SAME_OPERATORS = """
import sys
import numpy as np
import torch
from openxla.benchmark import user_models
name, folder = sys.argv[1:]
wanted = user_models.ModelOptions(inputs=("f32[2,3,8,8]",))
(case,) = user_models.find_cases(f"{folder}/{name}", wanted).cases
parameters = dict(case.model.model_parameters)
from openxla.benchmark.user_models.programs import in_torchscript
program = in_torchscript.create_model(**parameters)
inputs = tuple(program.preprocess(program.generate_default_inputs()))
own = program.outputs_of(inputs, seed=0)
with torch.no_grad():
    graph = program.exportable(tuple(map(torch.from_numpy, inputs)))
    found = graph(*map(torch.from_numpy, inputs))
for one, other in zip(own, found, strict=True):
    np.testing.assert_allclose(one, other.numpy(), rtol=1e-6)
assert len(list(graph.parameters())) >= 6
state = torch.load(f"{folder}/state.pt")["model"]
wide = torch.nn.Conv2d(3, 4, 3).double(), torch.nn.BatchNorm2d(4).double().eval()
for part, name in zip(wide, ("conv.", "norm."), strict=True):
    part.load_state_dict({k[len(name):]: v for k, v in state.items() if k.startswith(name)})
with torch.no_grad():
    y = torch.relu(wide[1](wide[0](torch.from_numpy(inputs[0]).double()))).mean((2, 3))
truth, _ = program.truth_and_reference(inputs)
np.testing.assert_allclose(truth[0], (y * 2).numpy(), rtol=1e-12)
"""


def test_torchscript_is_widened_and_what_is_none_gives_the_reason(files_of, prepared, environment):
    folder = files_of(FROM_A_FILE.format(source=TORCHSCRIPT), "torch")
    for name, inputs in (
        ("script.pt", "f32[2,3,8,8]"),
        ("trace.pth", "f32[2,3,8,8]"),
        ("branches.pt", "f32[2,8]"),
        ("bundled.pt", ""),
    ):
        answer = prepared(name, inputs, framework="torch")
        assert answer["type"] != "error", answer
        assert answer["without_float64"] is None, name
        if name != "branches.pt":
            assert answer["truth_check"]["routes"] == ["PyTorch", "PyTorch's decompositions"]
    for name in ("script.pt", "trace.pth"):
        run_script(SAME_OPERATORS, [name, str(folder)], environment, framework="torch")
    for name, given, words in (
        ("draws.pt", "f32[2,8]", "it draws random numbers"),
        ("script.pt", "f32[2,4,8,8]", "f32[2,4,8,8]: RuntimeError: Given groups=1"),
        ("script.pt", "f16[2,3,8,8]", "RuntimeError: "),
    ):
        answer = prepared(name, given, framework="torch")
        assert answer["type"] == "error", name
        assert words in answer["message"]
        assert "interpreter" not in answer["message"]


def test_files_of_torch_save_are_told_apart(files_of):
    folder = files_of(FROM_A_FILE.format(source=TORCHSCRIPT), "torch")
    for name, words in (
        ("whole.pt", ", which runs code when loaded"),
        ("state.pt", "is a pickle that contains only weights"),
        ("old.pt", "is a pickle that contains only weights"),
        ("cut.torchscript", "is not a complete TorchScript archive"),
    ):
        with pytest.raises(user_models.UserModelError, match=words):
            user_models.find_cases(
                name, user_models.ModelOptions(folder=folder, inputs=("f32[2]",))
            )


def test_torchscript_runs_in_pytorch_and_through_its_exporters(files_of, program_run):
    need("onnxruntime")
    files_of(FROM_A_FILE.format(source=TORCHSCRIPT), "torch")
    inputs = ("--input", "f32[batch,3,8,8]", "--batch", "2")
    competitors = ("pt_inductor:eager", "onnxruntime:default")
    assert_proved(program_run("trace.pth", *inputs, backend=",".join(competitors)), *competitors)
    # Dynamo runs operations on sizes eagerly, such as trace.pth's: they may take over 5 % of
    # the time, and the result is then `unsupported`.
    run = program_run("plain.pth", *inputs, backend="pt_inductor:inductor")
    assert run.statuses["PLAIN_FP32_PT_BATCH2 pt_inductor:inductor"] == "ok", run.out
    run = program_run(
        "branches.pt", "--input", "f32[2,8]", backend="pt_inductor:eager,pt_inductor:inductor"
    )
    assert run.statuses["BRANCHES_FP32_PT pt_inductor:eager"] == "ok", run.out + run.err
    assert run.statuses["BRANCHES_FP32_PT pt_inductor:inductor"] == "unsupported"
    assert "Could not guard on data-dependent expression" in run.out


KERAS = """
import sys
import keras

folder = sys.argv[1]
keras.utils.set_random_seed(0)
layers = [
    keras.layers.Conv2D(4, 3, activation="gelu"),
    keras.layers.BatchNormalization(),
    keras.layers.GlobalAveragePooling2D(),
    keras.layers.Dropout(0.3),
    keras.layers.Dense(5),
]
sequential = keras.Sequential([keras.Input((8, 8, 3)), *layers])
sequential.save(f"{folder}/sequential.keras")
sequential.save(f"{folder}/sequential.h5")
sequential.save_weights(f"{folder}/sequential.weights.h5")
ids, x = keras.Input((6,), dtype="int32", name="tokens"), keras.Input((6, 8), name="features")
hidden = keras.layers.LayerNormalization()(keras.layers.Embedding(20, 8)(ids) + x)
outputs = {"all": hidden, "last": keras.layers.LSTM(4)(hidden)}
keras.Model({"tokens": ids, "features": x}, outputs).save(f"{folder}/named.keras")
keras.Model([x, ids], outputs).save(f"{folder}/listed.keras")
twice = keras.layers.Lambda(lambda value: value * 2, name="twice")
keras.Model(x, twice(x)).save(f"{folder}/lambda.keras")
keras.config.set_dtype_policy("mixed_bfloat16")
keras.Sequential([keras.Input((8,)), keras.layers.Dense(4)]).save(f"{folder}/mixed.keras")
keras.config.set_dtype_policy("float32")
whole = open(f"{folder}/sequential.keras", "rb").read()
open(f"{folder}/cut.keras", "wb").write(whole[: len(whole) // 2])
"""


def test_keras_files_are_widened_and_what_is_none_gives_the_reason(files_of, prepared):
    folder = files_of(KERAS, "tensorflow")
    for name, inputs in (
        ("sequential.keras", ""),
        ("sequential.h5", ""),
        ("named.keras", "f32[2,6,8]; i32[2,6]<20"),
        ("mixed.keras", ""),
    ):
        answer = prepared(name, inputs, framework="tensorflow")
        assert answer["type"] != "error", answer
        assert answer["without_float64"] is None, name
        assert answer["truth_check"]["routes"] == ["TensorFlow", "TensorFlow by XLA"]
    answer = prepared("named.keras", "f32[2,6]", framework="tensorflow")
    takes = "named.keras takes features f32[?,6,8], tokens i32[?,6]"
    assert takes in answer["message"]
    for name, words in (
        ("lambda.keras", "the layer 'twice' is a Lambda, which is code"),
        ("cut.keras", "is not a complete Keras file"),
        ("sequential.weights.h5", "contains only weights"),
    ):
        with pytest.raises(user_models.UserModelError, match=words):
            user_models.find_cases(name, user_models.ModelOptions(folder=folder))


def test_keras_files_run_in_tensorflow_and_converted(files_of, program_run):
    for package in ("ai_edge_litert", "openvino"):
        need(package)
    files_of(KERAS, "tensorflow")
    competitors = ("tf_xla:graph", "tflite:native", "openvino:latency")
    assert_proved(program_run("listed.keras", backend=",".join(competitors)), *competitors)
    run = program_run("lambda.keras", "--allow-code", backend="tf_xla:graph")
    assert set(run.statuses.values()) == {"ok"}, run.out + run.err


@pytest.mark.usefixtures("onnx_files")
def test_a_folder_of_onnx_files_runs_each_file(tmp_path, program_run):
    folder = tmp_path / "models"
    folder.mkdir()
    for name in ("net", "future"):
        shutil.copy(tmp_path / f"{name}.onnx", folder)
    (folder / "broken.onnx").write_bytes(b"\x08")
    run = program_run("models", "--input", "f32[2,16]", backend="onnxruntime")
    assert run.statuses == {
        "NET_FP32_ONNX onnxruntime:default": "ok",
        "FUTURE_FP32_ONNX onnxruntime:default": "unsupported",
    }
    assert "broken.onnx is left out: " in run.out + run.err
    assert "supports at most IR version 1" in run.out
