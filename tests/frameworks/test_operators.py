"""Operators: each is the same function in all frameworks in which it is written."""

import functools
import itertools
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from framework_process import run_script
from tests_support import documented_plugin, python_path, selected

from openxla.benchmark import operators
from openxla.benchmark.operators.architecture import ARCHITECTURE
from openxla.benchmark.operators.models import OperatorModel

pytestmark = pytest.mark.frameworks

SHAPE = (36, 128, 24)
FRAMEWORKS = {
    "pt": ("in_torch", "pt_inductor"),
    "jax": ("in_jax", "jax_xla"),
    "tf": ("in_tensorflow", "tf_xla"),
}
DIFFERENTIABLE = sorted(n for n, item in operators.operators().items() if item.is_differentiable)
TENSORS = """
import ml_dtypes
import numpy as np
from openxla.benchmark.models.pt.tensors import as_tensor

for dtype in (np.float32, np.int64, np.bool_, ml_dtypes.bfloat16):
    for value in (np.ones((), dtype), np.arange(6).reshape(2, 3).astype(dtype).T):
        tensor = as_tensor(value)
        assert tensor.shape == value.shape, (dtype, tensor.shape)
        assert tensor.float().tolist() == value.astype(np.float32).tolist(), dtype
"""
RUN = """
import importlib, json, sys
from openxla.benchmark.operators import operators
import numpy as np
from openxla.benchmark.operators.architecture import ARCHITECTURE

module, folder, names, shape = sys.argv[1], sys.argv[2], *map(json.loads, sys.argv[3:5])
create_model = importlib.import_module("openxla.benchmark.operators." + module).create_model
for name in names:
    parameters = {"model_name": name, "data_type": "fp32", **dict(zip("mkn", shape))}
    model = create_model(**parameters)
    inputs = model.preprocess(model.generate_default_inputs())
    outputs = model.forward(*inputs)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    specs = ARCHITECTURE.output_specs(model.model_parameters)
    for place, (value, spec) in enumerate(zip(outputs, specs, strict=True)):
        array = np.asarray(value)
        assert array.shape == spec.shape, (name, array.shape, spec)
        assert array.dtype.itemsize == {"f32": 4, "i32": 4, "i8": 1}[spec.dtype], (name, spec)
        np.save(f"{folder}/{name}-{place}.npy", array)
    if not operators()[name].is_differentiable:
        continue
    # Forward and backward in float64, and once in the model's own type.
    model = create_model(**parameters, direction="forward_backward")
    inputs = model.preprocess(model.generate_default_inputs())
    specs = ARCHITECTURE.output_specs(model.model_parameters)
    truth, own = importlib.import_module(sys.argv[5]).compute(model, inputs)
    for place, (exact, value, spec) in enumerate(zip(truth, own, specs, strict=True)):
        assert exact.shape == value.shape == spec.shape, (name, value.shape, spec)
        np.save(f"{folder}/{name}-both-{place}.npy", exact)
"""


def _has(operator, framework):
    """Whether an operator is written in a framework; one of a plug-in may lack some."""
    fields = dict(zip(FRAMEWORKS, operators.FRAMEWORKS, strict=True))
    return fields[framework] in operator.frameworks


def _arrays(folders, name, place):
    """Returns an output of an operator in each framework that has it."""
    operator = operators.get(name)
    return [
        np.load(folder / f"{name}-{place}.npy")
        for framework, folder in folders.items()
        if _has(operator, framework)
    ]


def _some(names):
    """Every third operator is in the default tier."""
    return [
        pytest.param(name, marks=pytest.mark.nightly if place % 3 else ())
        for place, name in enumerate(names)
    ]


@pytest.fixture(scope="module")
def outputs(request, tmp_path_factory, environment):
    """Folder of each framework's outputs of the selected operators."""
    folders = {}
    chosen = {
        *selected(request, test_an_operator_is_the_same_in_all_frameworks, "name"),
        *selected(request, test_gradients_are_the_same_in_all_frameworks, "name"),
    }
    for framework, (module, room) in FRAMEWORKS.items():
        folders[framework] = tmp_path_factory.mktemp(framework)
        written = [name for name in chosen if _has(operators.get(name), framework)]
        arguments = [str(folders[framework]), json.dumps(written)]
        arguments += [json.dumps(SHAPE), f"comparative_benchmark.{room}.reference"]
        run_script(RUN, [module, *arguments], environment, framework=framework)
    return folders


@pytest.mark.parametrize("name", _some(sorted(operators.operators())))
def test_an_operator_is_the_same_in_all_frameworks(outputs, name):
    parameters = {"model_name": name, "data_type": "fp32", **dict(zip("mkn", SHAPE))}
    for place in range(len(ARCHITECTURE.output_specs(parameters))):
        ours, *others = _arrays(outputs, name, place)
        assert ours.size > 1
        assert ours.max() > ours.min()
        for other in others:
            np.testing.assert_allclose(other, ours, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("name", _some(DIFFERENTIABLE))
def test_gradients_are_the_same_in_all_frameworks(outputs, name):
    parameters = {"model_name": name, "data_type": "fp32", **dict(zip("mkn", SHAPE))}
    specs = ARCHITECTURE.output_specs({**parameters, "direction": "forward_backward"})
    assert len(specs) > len(ARCHITECTURE.output_specs(parameters))
    for place in range(len(specs)):
        ours, *others = _arrays(outputs, name, f"both-{place}")
        assert ours.std() > 0
        for other in others:
            assert abs(other - ours).max() < 1e-9 * ours.std()


GUIDE = """
import sys
sys.path.insert(0, sys.argv[1])
import torch
from benchmarks.microbenchmarks.utils import create_model_and_input_data

for kind, n in (("linear", 24), ("ln_linear", 24), ("transformer_block", 16)):
    model, data = create_model_and_input_data(
        kind, 4, 16, n, high_precision_dtype=torch.bfloat16, device="cpu", activation="silu"
    )
    assert data.dtype == torch.bfloat16
    assert {p.dtype for p in model.parameters()} == {torch.bfloat16}
    assert model(data).shape[-1] == n
"""


def test_a_tensor_has_the_shape_of_its_array(environment):
    run_script(TENSORS, [], environment, framework="pt")


def test_models_and_inputs_are_made_as_torchaos_guide_calls_it(environment):
    run_script(GUIDE, [str(Path(__file__).parents[2])], environment, framework="pt")


def test_a_model_type_is_added_as_the_document_says(tmp_path, environment):
    """The guide's own example, in one file: right in every framework, and an entry of a YAML."""
    root, group = Path(__file__).parents[2], "openxla.benchmark.operators"
    name = "my_custom_model"
    page = root / "docs/guides/extend/add-a-model-type.md"
    documented_plugin(tmp_path, page, name, group, f"{name}:OPERATOR")
    environment = {**environment, "PYTHONPATH": python_path(tmp_path)}
    shape = ["--op", name, "--shapes", "8x16x4", "-w", "0", "-iter", "1"]
    backends = ["--backend", "pt_inductor:eager,jax_xla:xla,tf_xla:xla"]
    cbs = functools.partial(
        subprocess.run, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    command = [sys.executable, "-m", "comparative_benchmark", "micro", "run"]
    run = cbs([*command, *shape, *backends, "-o", "results.json"])
    assert run.returncode == 0, run.stderr
    results = json.loads((tmp_path / "results.json").read_text())["benchmarks"]
    assert [result["status"] for result in results] == ["ok"] * 3
    (tmp_path / "guide.yml").write_text(
        f"model_params: [{{model_type: {name}, device: cpu, use_torch_compile: false,\n"
        "  matrix_shapes: [{name: custom, shapes: [[8, 16, 4]]}]}]\n"
    )
    run = cbs([*command, "--config", "guide.yml", *shape[4:], "-o", "guide.json"])
    assert run.returncode == 0, run.stderr
    assert name in (tmp_path / "guide.csv").read_text()


HALF = """
from openxla.benchmark.operators import Argument, Operator

OPERATOR = Operator(
    name="half",
    description="x / 2",
    uses=("m", "k"),
    arguments=lambda m, k, n: [Argument(shape=(m, k))],
    results=lambda m, k, n: [Argument(shape=(m, k))],
    torch=lambda x: x / 2,
)
"""


def test_an_operator_of_one_framework_is_unsupported_in_the_others(tmp_path, environment):
    (tmp_path / "half.py").write_text(HALF)
    registered = tmp_path / "half-1.dist-info"
    registered.mkdir()
    (registered / "METADATA").write_text("Metadata-Version: 2.1\nName: half\nVersion: 1\n")
    (registered / "entry_points.txt").write_text(
        "[openxla.benchmark.operators]\nhalf = half:OPERATOR\n"
    )
    done = subprocess.run(
        [
            *(sys.executable, "-m", "comparative_benchmark", "micro", "run", "--op", "half"),
            *("--shapes", "8x16x4", "-w", "0", "-iter", "1", "-o", "results.json"),
            *("--backend", "pt_inductor:eager,jax_xla:xla,tf_xla:graph"),
        ],
        cwd=tmp_path,
        env={**environment, "PYTHONPATH": python_path(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    results = json.loads((tmp_path / "results.json").read_text())["benchmarks"]
    assert [(result["status"], result.get("reason")) for result in results] == [
        ("ok", None),
        ("unsupported", "operator half has no jax function, only torch"),
        ("unsupported", "operator half has no tensorflow function, only torch"),
    ]


def test_calibration_has_other_draws_than_what_is_measured():
    class Model(OperatorModel):
        def forward(self, *inputs):
            raise NotImplementedError

    model = Model()
    model.set_operator({"model_name": "linear", "data_type": "fp32", "m": 4, "k": 8, "n": 2})
    (default,) = model.preprocess(model.generate_default_inputs())
    draws = [draw for (draw,) in model.calibration_inputs(3)]
    assert [draw.shape for draw in draws] == [default.shape] * 3
    seen = [default, *draws]
    assert all(not np.allclose(a, b) for a, b in itertools.combinations(seen, 2))
