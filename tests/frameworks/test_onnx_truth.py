"""The truth of an ONNX file: operators are right, checked twice, and doubts are reported."""

import json
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

import numpy as np
import onnx_rows
import pytest
from agreement_support import need
from framework_process import run_script
from tests_support import run_cbs

pytestmark = pytest.mark.frameworks

# ONNX Runtime pads by the kernel's size without its dilation; shape inference is the third opinion.
DISPUTED = {"MaxPool-dilations-same-lower"}


@pytest.fixture(scope="session")
def rows(tmp_path_factory, environment):
    """The outcome of each row of `onnx_rows`."""
    for package in ("onnx", "torch"):
        need(package)
    target = tmp_path_factory.mktemp("rows") / "rows.json"
    run_script(Path(onnx_rows.__file__).read_text(), [str(target)], environment, framework="torch")
    return json.loads(target.read_text())


@pytest.mark.parametrize("name", onnx_rows.ROWS)
def test_an_operator_is_right_in_float64(rows, name):
    found = rows[name]
    assert all(isinstance(error, float) and error < 1e-12 for error in found["errors"]), found


def test_onnx_runtime_agrees_with_all_rows_but_those_that_are_disputed(rows):
    need("onnxruntime")
    assert not [name for name, found in rows.items() if found["check"]["in_doubt"]]
    outvoted = {name: found["check"]["outvoted"] for name, found in rows.items()}
    assert {name for name, differences in outvoted.items() if differences} == DISPUTED
    (difference,) = outvoted["MaxPool-dilations-same-lower"]
    assert (difference["operator"], difference["node"]) == ("MaxPool", "it")
    assert difference["error"] is None
    agreed = [found["check"]["routes"] for name, found in rows.items() if name not in DISPUTED]
    checked = [routes for routes in agreed if "ONNX Runtime" in routes]
    # It lacks LRN of an even size, and LSTM with the batch first.
    assert len(checked) >= len(agreed) - 2


def test_two_right_kernels_agree_without_a_float64_truth(rows):
    reasons = {name: [why for why in found["agreement"] if why] for name, found in rows.items()}
    assert {name: why for name, why in reasons.items() if why} == {}
    # Two or more runs, and each compares one.
    assert sum(len(found["agreement"]) for found in rows.values()) > len(rows)


# Faults planted in one implementation; the others have to find them.
PLANTED = """
import json, sys
import numpy as np
import attrs
from openxla.benchmark.user_models.onnx import in_onnx, onnx_operators
import onnx_rows

right = onnx_operators._OPERATORS

def plant(kind):
    def wrong(attributes, opset, used, x, *others):
        found = [e for k, a, b, e in right if k == kind and a <= opset <= b][0]
        return tuple(value * 1.001 for value in found(attributes, opset, used, x, *others))
    onnx_operators._OPERATORS = tuple(
        (k, a, b, wrong if k == kind else e) for k, a, b, e in right
    )

def outcome(name):
    row = onnx_rows.ROWS[name]
    outputs, routes = in_onnx.run_in_float64(
        onnx_rows.model_of(row), onnx_rows.inputs_of(row)
    )
    expected = row.expected(*row.operands)
    error = np.abs(outputs[0] - expected).max() / np.abs(expected).max()
    return {"error": float(error), "overruled": routes.is_overruled, **attrs.asdict(routes.check())}

found = {}
for kind, name in (("LRN", "LRN-odd"), ("Softmax", "Softmax-11-axis-2")):
    plant(kind)
    found[kind] = outcome(name)
onnx_operators._OPERATORS = right
installed = sys.modules.get("onnxruntime")
sys.modules["onnxruntime"] = None  # as if it were not installed
for name in ("Softmax-11-axis-2", "LRN-odd"):
    found[f"alone-{name}"] = outcome(name)
plant("Softmax")
found["alone-wrong"] = outcome("Softmax-11-axis-2")
onnx_operators._OPERATORS = right
sys.modules.pop("onnxruntime")
if installed is not None:
    sys.modules["onnxruntime"] = installed
with open(sys.argv[1], "w") as file:
    json.dump(found, file)
"""


@pytest.fixture(scope="session")
def planted(tmp_path_factory, environment):
    """Outcomes with wrong operators, and without ONNX Runtime."""
    for package in ("onnx", "onnxruntime"):
        need(package)
    target = tmp_path_factory.mktemp("planted") / "found.json"
    tests = str(Path(onnx_rows.__file__).parent)
    script = f"import sys; sys.path.insert(0, {tests!r})\n{PLANTED}"
    run_script(script, [str(target)], environment, framework="onnx")
    return json.loads(target.read_text())


def test_a_wrong_operator_without_a_third_opinion_puts_the_truth_in_doubt(planted):
    found = planted["LRN"]
    (doubt,) = found["in_doubt"]
    assert doubt["operator"] == "LRN"
    assert doubt["node"] == "it"
    assert doubt["error"] == pytest.approx(1e-3, rel=0.01)
    assert found["overruled"]
    assert planted["alone-wrong"]["in_doubt"][0]["operator"] == "Softmax"


def test_two_implementations_outvote_a_wrong_one_and_give_the_truth(planted):
    found = planted["Softmax"]
    assert not found["in_doubt"]
    (difference,) = found["outvoted"]
    assert difference["routes"] == ["a newer version of the operator", "ONNX's evaluator"]
    assert found["overruled"]
    assert found["error"] < 1e-12


def test_without_onnx_runtime_a_newer_version_checks_or_nothing_does(planted):
    found = planted["alone-Softmax-11-axis-2"]
    assert found["routes"] == ["ONNX's evaluator", "a newer version of the operator"]
    assert not found["unchecked"]
    # The evaluator's own LRN is wrong, so it is not used.
    assert planted["alone-LRN-odd"]["unchecked"] == ["LRN"]
    assert not planted["alone-LRN-odd"]["in_doubt"]


FILES = """
import sys
import numpy as np, onnx
from onnx import TensorProto as T, helper as h, numpy_helper as n

random = np.random.RandomState(0)
folder = sys.argv[1]

def weight(name, *sizes):
    return n.from_array((random.randn(*sizes) / 4).astype("float32"), name)

def save(name, nodes, opset, weights=(), sizes=(2, 3, 8, 9), outputs=("y",), **given):
    listed, ml = given.get("listed"), given.get("ml")
    ins = [h.make_tensor_value_info("x", T.FLOAT, sizes)]
    ins += [h.make_tensor_value_info(w.name, w.data_type, w.dims) for w in weights if listed]
    outs = [h.make_tensor_value_info(name, T.FLOAT, None) for name in outputs]
    opsets = [h.make_opsetid("", opset), *([h.make_opsetid("ai.onnx.ml", 3)] if ml else [])]
    graph = h.make_graph(nodes, "g", ins, outs, list(weights))
    model = h.make_model(graph, opset_imports=opsets, ir_version=3 if listed else 8)
    if "label" not in outputs:
        model = onnx.shape_inference.infer_shapes(model)
    onnx.save(model, f"{folder}/{name}.onnx")

statistics = [weight(name, 3) for name in "sbm"]
statistics.append(n.from_array(np.full(3, 0.7, "float32"), "v"))
save("norm", [h.make_node("BatchNormalization", ["x", *"sbmv"], ["y"])], 11, statistics)
save("softmax", [h.make_node("Softmax", ["x"], ["y"], axis=1)], 11)
places = n.from_array(np.array([[[[5, 7], [13, 15]]]]), "i")
save("disputed", [
    h.make_node(
        "MaxUnpool", ["x", "i", "o"], ["y"], name="back", kernel_shape=[2, 2], strides=[2, 2]
    ),
], 11, [places, n.from_array(np.array([1, 1, 5, 5]), "o")], sizes=(1, 1, 2, 2))
save("old", [
    h.make_node("Conv", ["x", "w"], ["a"], kernel_shape=[3, 3]),
    h.make_node("BatchNormalization", ["a", *"sbmv"], ["n"]),
    h.make_node("Relu", ["n"], ["c"]),
    h.make_node("Dropout", ["c"], ["d"], ratio=0.5),
    h.make_node("Upsample", ["d"], ["e"], scales=[1.0, 1.0, 2.0, 2.0], mode="nearest"),
    h.make_node("Flatten", ["e"], ["y"]),
], 7, [weight("w", 3, 3, 3, 3), *statistics], listed=True)
classes = dict(coefficients=[0.1] * 6, intercepts=[0.0, 0.1], classlabels_ints=[0, 1])
save("zipmap", [
    h.make_node("LinearClassifier", ["x"], ["l", "p"], domain="ai.onnx.ml", **classes),
    h.make_node("ZipMap", ["p"], ["label"], domain="ai.onnx.ml", classlabels_int64s=[0, 1]),
], 17, sizes=(2, 3), outputs=("label",), ml=True)
"""


@pytest.fixture
def onnx_run(tmp_path, environment):
    """Runs `cbs run` on a file of `FILES`."""
    need("onnx")
    run_script(FILES, [str(tmp_path)], environment, framework="onnx")

    # A test changes the files there.
    own_root = environment | {"CBS_ROOT_DIR": str(tmp_path / "root")}

    def run(name, backend):
        for competitor in backend.split(","):
            package = competitor.partition(":")[0]
            need("iree.compiler" if package == "iree" else package)
        return run_cbs(
            *(f"{name}.onnx", "--backend", backend, "-w", "1", "-iter", "2"),
            directory=tmp_path,
            environment=own_root,
        )

    return run


def statuses(run):
    return {
        record["definition"]["backend"]: record["status"] for record in run.document["benchmarks"]
    }


def metrics(run, backend):
    of_backend = [r for r in run.document["benchmarks"] if r["definition"]["backend"] == backend]
    found = of_backend[-1]
    (level,) = found["metrics"].values()
    return found, level


def test_a_batch_normalization_of_opset_11_is_right_on_both_runtimes(onnx_run):
    run = onnx_run("norm", "onnxruntime,openvino")
    assert statuses(run) == {"onnxruntime": "ok", "openvino": "ok"}, run.out + run.err
    assert "agreed" not in run.out
    _, found = metrics(run, "openvino")
    assert found["truth_check"]["routes"] == ["ONNX's evaluator", "ONNX Runtime"]


def test_a_softmax_of_opset_11_finds_the_runtime_that_is_wrong(onnx_run):
    run = onnx_run("softmax", "onnxruntime,openvino")
    assert statuses(run) == {"onnxruntime": "ok", "openvino": "wrong_output"}, run.out + run.err
    assert "Use onnxruntime" in run.out


@pytest.mark.nightly
def test_a_softmax_of_few_rows_is_right_on_iree(onnx_run):
    run = onnx_run("softmax", "iree:llvm-cpu")
    assert statuses(run) == {"iree": "ok"}, run.out + run.err


def test_a_truth_in_doubt_is_agreed_and_names_the_operator(onnx_run):
    run = onnx_run("disputed", "onnxruntime")
    assert run.code == 0, run.out + run.err
    record, found = metrics(run, "onnxruntime")
    assert record["status"] == "ok"
    assert " agreed " in run.err
    (doubt, *_) = found["truth_check"]["in_doubt"]
    assert (doubt["operator"], doubt["node"]) == ("MaxUnpool", "back")
    assert "in doubt: ONNX's evaluator and ONNX Runtime differ by " in run.out


def test_an_output_is_not_wrong_by_a_truth_in_doubt(onnx_run, tmp_path):
    first = onnx_run("softmax", "openvino")
    assert statuses(first) == {"openvino": "wrong_output"}, first.out + first.err
    (record,) = first.document["benchmarks"]
    with changed_manifest(tmp_path, record) as (_, manifest):
        difference = {"operator": "Softmax", "node": "it", "routes": ["one", "other"]}
        manifest["truth_check"]["in_doubt"] = [difference | {"error": 0.5}]
    second = onnx_run("softmax", "openvino")
    assert statuses(second) == {"openvino": "unsupported"}, second.out + second.err
    record, _ = metrics(second, "openvino")
    assert (
        "truth in doubt: one and other differ by 0.5 times the scale at Softmax (it)"
        in (record["reason"])
    )


@contextmanager
def changed_manifest(directory, record):
    """Yields the folder of a workload, and its manifest to be changed."""
    folder = directory / "root" / "workloads" / record["definition"]["workload"]["id"]
    file = folder / "manifest.json"
    manifest = json.loads(file.read_text())
    yield folder, manifest
    file.write_text(json.dumps(manifest))


@pytest.mark.parametrize("is_unchecked", [True, False])
def test_two_runtimes_put_a_truth_of_one_implementation_in_doubt(onnx_run, tmp_path, is_unchecked):
    backends = "onnxruntime,openvino"
    first = onnx_run("norm", backends)
    assert statuses(first) == {"onnxruntime": "ok", "openvino": "ok"}, first.out + first.err
    with changed_manifest(tmp_path, first.document["benchmarks"][0]) as (folder, manifest):
        for kind in ("truth", "reference"):
            file = folder / kind / "output_0.npy"
            np.save(file, np.load(file) * 2)
            facts = {"sha256": sha256(file.read_bytes()).hexdigest()}
            manifest["files"][f"{kind}/{file.name}"] |= facts
        manifest["truth_check"]["unchecked"] = ["BatchNormalization"] if is_unchecked else []
    second = onnx_run("norm", backends)
    status = "unsupported" if is_unchecked else "wrong_output"
    assert statuses(second) == dict.fromkeys(backends.split(","), status), second.out + second.err
    record, found = metrics(second, "openvino")
    if is_unchecked:
        (doubt,) = found["truth_check"]["in_doubt"]
        assert doubt["operator"] == "BatchNormalization"
        assert doubt["routes"] == ["ONNX's evaluator", "onnxruntime with openvino"]
        assert record["reason"].startswith("truth in doubt: ")


@pytest.mark.nightly
def test_an_old_file_that_lists_its_weights_as_inputs_has_a_float64_truth(onnx_run):
    run = onnx_run("old", "onnxruntime")
    assert statuses(run) == {"onnxruntime": "ok"}, run.out + run.err
    assert "without_float64" not in metrics(run, "onnxruntime")[1]


def test_a_zipmap_is_refused_with_the_way_out(onnx_run):
    run = onnx_run("zipmap", "onnxruntime")
    assert "output 'label' comes from ZipMap" in run.err
    assert "options={'zipmap': False}" in run.err


COMPLEX = """
import torch

class Net(torch.nn.Module):
    def forward(self, x):
        spectrum = torch.fft.rfft(x)
        return x.sum(-1), spectrum, torch.stack([x, x + 1], -1)

def example_inputs():
    return torch.randn(2, 64)
"""


def test_complex_outputs_are_compared_as_complex_numbers(tmp_path, environment):
    for package in ("torch", "onnxruntime", "onnxscript"):
        need(package)
    (tmp_path / "net.py").write_text(COMPLEX)
    run = run_cbs(
        *("net.py", "--backend", "onnxruntime", "-w", "1", "-iter", "2"),
        directory=tmp_path,
        environment=environment,
    )
    assert statuses(run) == {"onnxruntime": "ok"}, run.out + run.err
    assert metrics(run, "onnxruntime")[1]["verification"]["relative_rmse"] < 1e-6


UNUSUAL = """
import sys
import numpy as np, onnx
from onnx import TensorProto as T, helper as h, numpy_helper as n
from pathlib import Path
from openxla.benchmark.user_models.onnx import in_onnx
from openxla.benchmark.user_models.programs.programs import ONNX, digest_of

random = np.random.default_rng(0)
draw = lambda *sizes: random.normal(size=sizes).astype("float32")
value = lambda name, sizes, kind=T.FLOAT: h.make_tensor_value_info(name, kind, sizes)
constant = lambda name, array: n.from_array(np.asarray(array), name)

def judged(x, nodes, opset, outputs=("y",), weights=(), functions=()):
    opsets = [h.make_opsetid("", opset), h.make_opsetid("own", 1)]
    kind = h.np_dtype_to_tensor_dtype(x.dtype)
    graph = h.make_graph(
        nodes, "g", [value("x", x.shape, kind)], [onnx.ValueInfoProto(name=o) for o in outputs],
        list(weights),
    )
    model = h.make_model(graph, opset_imports=opsets, ir_version=8, functions=list(functions))
    path = Path(sys.argv[1], "net.onnx")
    onnx.save(onnx.shape_inference.infer_shapes(model), path)
    found = in_onnx.create_model(
        source=str(path), program=ONNX.name, source_sha256=digest_of(path, ONNX), data_type="fp32"
    )
    truth, _ = found.truth_and_reference([x])
    return truth, found

def assert_checked(found):
    assert found.without_float64 is None, found.without_float64
    assert "ONNX Runtime" in found.truth_check.routes
    assert not found.truth_check.unchecked

def function(name, takes, node, opset):
    return h.make_function("own", name, takes, ["b"], [node], [h.make_opsetid("", opset)])

# Functions of the file.
x = draw(2, 3)
twice = function("Twice", ["a"], h.make_node("Add", ["a", "a"], ["b"]), 17)
(y,), found = judged(x, [h.make_node("Twice", ["x"], ["y"], domain="own")], 17, functions=[twice])
assert_checked(found)
assert (y == 2 * x.astype(float)).all()

parts = "asmpv"
norm = function("Norm", list(parts), h.make_node("BatchNormalization", list(parts), ["b"]), 9)
weights = [constant(name, np.abs(draw(3)) + 0.1) for name in parts[1:]]
node = h.make_node("Norm", ["x", *parts[1:]], ["y"], domain="own")
x = draw(2, 3, 4)
(y,), found = judged(x, [node], 17, weights=weights, functions=[norm])
scale, bias, mean, var = (n.to_array(weight)[:, None] for weight in weights)
assert "own.Norm" in found.without_float64
assert np.abs(y - ((x - mean) / np.sqrt(var + 1e-5) * scale + bias)).max() < 1e-5

# Integers and infinity, resized.
double = [constant("s", np.array([1, 1, 2, 2], "float32"))]
pixels = random.integers(0, 255, (1, 1, 4, 4)).astype("uint8")
for mode in ("nearest", "linear"):
    (y,), found = judged(pixels, [h.make_node("Resize", ["x", "", "s"], ["y"], mode=mode)], 18,
                         weights=double)
    assert_checked(found)
    assert np.abs(y[..., ::2, ::2].astype(float) - pixels).max() < 128
(y,), _ = judged(pixels, [h.make_node("Resize", ["x", "", "s"], ["y"], mode="cubic")], 18,
                 weights=double)
assert np.abs(y.astype(float).mean() - pixels.mean()) < 20
x = draw(1, 1, 4, 4)
x[0, 0, 0, 0] = np.inf
(y,), found = judged(x, [h.make_node("Resize", ["x", "", "s"], ["y"])], 18, weights=double)
assert_checked(found)
assert np.isinf(y).sum() == 4 and not np.isnan(y).any()

# A loop without a condition.
x = draw(2, 3)
body = h.make_graph(
    [h.make_node("Add", ["v", "v"], ["w"]), h.make_node("Identity", ["c"], ["d"])], "body",
    [value("i", (), T.INT64), value("c", (), T.BOOL), value("v", (2, 3))],
    [value("d", (), T.BOOL), value("w", (2, 3))],
)
(y,), found = judged(x, [h.make_node("Loop", ["m", "", "x"], ["y"], body=body)], 17,
                     weights=[constant("m", np.int64(5))])
assert_checked(found)
assert (y == 32 * x.astype(float)).all()

# Old versions.
(y, mask), found = judged(x, [h.make_node("Dropout", ["x"], ["y", "mask"])], 10, ("y", "mask"))
assert_checked(found)
x = draw(1, 1, 5, 5)
for opset in (10, 16):
    corners = [constant("r", np.array([[0, 0, 3, 3]], "float32")), constant("i", [0])]
    node = h.make_node("RoiAlign", ["x", "r", "i"], ["y"], output_height=2, output_width=2)
    _, found = judged(x, [node], opset, weights=corners)
    assert_checked(found)
node = h.make_node("AveragePool", ["x"], ["y"], kernel_shape=[2, 2], pads=[1, 1, 1, 1])
(old,), _ = judged(x, [node], 6)
(new,), found = judged(x, [node], 11)
assert_checked(found)
assert (old == new).all()

# An input and a constant inside a node may have the same name.
node = h.make_node("Constant", [], ["c"], value=constant("x", np.float32(3)))
(y,), found = judged(x, [node, h.make_node("Mul", ["x", "c"], ["y"])], 17)
assert [argument.name for argument in found.signature().arguments] == ["x"]
assert (y == 3 * x.astype(float)).all()
"""


def test_unusual_files_have_a_right_truth(tmp_path, environment):
    for package in ("onnx", "onnxruntime"):
        need(package)
    run_script(UNUSUAL, [str(tmp_path)], environment, framework="onnx")
