"""User models run: modules, directories, a YAML entry; refusals give the reason."""

import csv
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from agreement_support import need
from framework_process import run_script
from tests_support import run_cbs

pytestmark = pytest.mark.frameworks

ROOT = Path(__file__).parents[2]
COUNTS = ("-w", "1", "-iter", "2")
BAD = """
import torch

def needs(hidden): return torch.nn.Linear(16, hidden)
def raises(): raise ValueError("no weights today")
def half(): return torch.nn.Linear(16, 2).half()
def text(): return "hello"
def nothing(): pass

class Random(torch.nn.Module):
    def forward(self, x): return torch.nn.functional.dropout(x, 0.5, training=True)

class Changes(torch.nn.Module):
    def forward(self, x): return x.add_(1)

class Counts(torch.nn.Module):
    calls = 0
    def forward(self, x):
        self.calls += 1
        return x * self.calls

class Rounds(torch.nn.Module):
    def forward(self, x): return x.bfloat16().float() * 3

class Keeps(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("rows", torch.zeros(16, 16))
    def forward(self, x):
        self.rows[x[0].argmax()] = x[0]
        return self.rows.sum(0)

class OnGpu(torch.nn.Module):
    def forward(self, x): return x.cuda() * 3

def misfit(): return torch.nn.Linear(15, 2)
"""
FITTED = """
import torch
from .layers import Linear

def fit(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    x = torch.randn(64, 4)
    for _ in range(3):
        optimizer.zero_grad()
        (model(x) - x.sum(-1, keepdim=True)).square().mean().backward()
        optimizer.step()
    return model

class Net(torch.nn.Sequential):
    pass

backbone = Linear(4, 8)
fit(torch.nn.Sequential(backbone, Linear(8, 1)))

def create_model():
    return fit(Net(backbone, torch.nn.Tanh(), Linear(8, 2))).eval()

def example_inputs():
    x = torch.randn(8, 4, requires_grad=True)
    (gradient,) = torch.autograd.grad(x.square().sum(), x)
    return gradient
"""
FORCES = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a = torch.nn.Linear(3, 8)

    def forward(self, positions):
        with torch.enable_grad():
            p = positions.detach().requires_grad_(True)
            energy = torch.tanh(self.a(p)).sum()
            (force,) = torch.autograd.grad(energy, p)
        return energy.detach(), -force

def example_inputs():
    return torch.randn(10, 3)
"""
JAX = """
import jax
import jax.numpy as jnp
from flax import nnx

class Net(nnx.Module):
    def __init__(self, rngs):
        self.up = nnx.Linear(16, 8, rngs=rngs)
        self.norm = nnx.BatchNorm(8, rngs=rngs)
        self.dropout = nnx.Dropout(0.5, rngs=rngs)

    def __call__(self, x):
        return {"y": self.dropout(self.norm(jax.nn.gelu(self.up(x))))}

def create_model():
    return Net(nnx.Rngs(0))

def pair():
    return (lambda params, x: x @ params["w"]), {"w": jnp.eye(16, 4)}

@jax.jit
def gram(x):
    return x @ x.T

def example_inputs():
    return jax.random.normal(jax.random.key(1), (8, 16))
"""
KERAS = """
import keras
import numpy as np
import tensorflow as tf

def create_model():
    layers = [keras.layers.Dense(8, activation="gelu"), keras.layers.Dropout(0.3)]
    return keras.Sequential([*layers, keras.layers.BatchNormalization()])

class Fixed(tf.Module):
    def __init__(self):
        self.w = tf.Variable(tf.random.normal([16, 4]))

    def __call__(self, x):
        return x @ self.w

def example_inputs():
    return np.random.RandomState(0).randn(8, 16).astype("float32")
"""
# Prepares a model as a worker does, and prints the outcome.
PREPARE = """
import json, pathlib, sys
from comparative_benchmark.backends.api import get_backend
from comparative_benchmark.engine.worker.executor import Executor
from openxla.benchmark import user_models
text, inputs, backend, target = sys.argv[1:]
options = user_models.ModelOptions(inputs=tuple(filter(None, [inputs])))
(case,) = user_models.find_cases(text, options).cases
answer = Executor(lambda _: None).handle({"command": "prepare", "id": 0, "arguments": dict(
    module_path=case.model.model_impl.module_path, parameters=dict(case.model.model_parameters),
    reference=get_backend(backend).reference, directory=target)})
pathlib.Path(target, "answer.json").write_text(json.dumps(answer))
"""
# The largest difference between our pixels and transformers', for each processor.
PICTURES = """
import json, pathlib, sys, tempfile
import numpy as np, transformers
from PIL import Image
from openxla.benchmark import testdata
from openxla.benchmark.user_models.hugging_face import real_inputs
whole = Image.open(testdata.DEFAULT_IMAGE).convert("RGB")
wide = whole.crop((0, 0, whole.width, whole.height * 2 // 3))
sides = {"height": 36, "width": 48}
errors = {}
for name, options in (
    ("ViT", dict(size=sides)), ("ConvNext", dict(size=dict(shortest_edge=56))),
    ("ConvNext", dict(size=dict(shortest_edge=384))), ("EfficientNet", dict(size=sides)),
    ("EfficientNet", dict(size=dict(height=46, width=60), do_center_crop=True, crop_size=sides)),
    ("CLIP", dict(size=dict(shortest_edge=40), crop_size=dict(height=40, width=40))),
):
    processor = getattr(transformers, f"{name}ImageProcessorPil")(**options)
    with tempfile.TemporaryDirectory() as folder:
        processor.save_pretrained(folder)
        config = json.loads(pathlib.Path(folder, "preprocessor_config.json").read_text())
    ours = real_inputs._prepared(wide, config)
    theirs = processor(wide, return_tensors="np")["pixel_values"][0]
    assert ours.shape == theirs.shape
    errors[f"{name} {options}"] = float(np.abs(ours - theirs).max())
pathlib.Path(sys.argv[1]).write_text(json.dumps(errors))
"""


@pytest.fixture
def prepared(tmp_path, environment):
    """Makes the truth of a model in a process of a framework; returns its answer."""

    def prepare(text, inputs="", *, backend="pt_inductor", framework="torch"):
        arguments = [str(tmp_path / text), inputs, backend, str(tmp_path)]
        run_script(PREPARE, arguments, environment, framework=framework)
        return json.loads((tmp_path / "answer.json").read_text())

    return prepare


@pytest.fixture
def brought_run(tmp_path, environment):
    """Runs `cbs run MODEL` in the test's folder."""

    def run(*arguments, backend="pt_inductor:eager"):
        return run_cbs(
            *arguments,
            *("--backend", backend, *COUNTS),
            directory=tmp_path,
            environment=environment,
        )

    return run


@pytest.fixture
def my_net(tmp_path):
    return Path(shutil.copy(ROOT / "docs" / "examples" / "my_net.py", tmp_path))


def test_a_module_is_raced_verified_and_known_by_its_file(brought_run, my_net):
    need("onnxruntime")
    backend = "pt_inductor:eager,onnxruntime"
    first = brought_run("my_net.py", backend=backend)
    assert first.code == 0, first.out + first.err
    assert set(first.statuses) == {
        "MY_NET_FP32_PT pt_inductor:eager",
        "MY_NET_FP32_PT onnxruntime:default",
    }
    [one, other] = first.document["benchmarks"]
    assert one["definition"]["workload"] == other["definition"]["workload"]
    metrics = one["metrics"]["framework_level"]
    assert metrics["verification"]["passed"]
    assert metrics["second_verification"]["passed"]
    assert "not exact" not in first.out
    # Work that is done is not repeated, unless the file has changed.
    my_net.write_text(my_net.read_text().replace("hidden: int = 32", "hidden: int = 40"))
    changed = brought_run("my_net.py", "--resume")
    assert len(changed.document["benchmarks"]) == 3
    again = brought_run("my_net.py", "--resume")
    assert len(again.document["benchmarks"]) == 3


@pytest.mark.usefixtures("my_net")
def test_what_was_run_is_saved_and_is_the_same_when_it_is_run_again(brought_run):
    first = brought_run("my_net.py", "--save-as", "suite")
    assert first.code == 0, first.out + first.err
    assert "saved: " in first.out + first.err
    # Nothing is measured again: it is the same case of the same workload.
    again = brought_run("--suite-dir", "suite", "--resume")
    assert again.code == 0, again.out + again.err
    assert again.document["benchmarks"] == first.document["benchmarks"]
    (one,) = brought_run("--suite-dir", "suite").document["benchmarks"][1:]
    assert (
        one["definition"]["workload"] == first.document["benchmarks"][0]["definition"]["workload"]
    )
    refused = brought_run("my_net.py", "--dtype", "bf16", "--save-as", "suite")
    assert refused.code == 1
    assert "already exists with other content" in refused.err


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("needs", "bad.py:needs(hidden) cannot be called without arguments"),
        ("raises", "bad.py:raises() raised ValueError: no weights today (line 5)"),
        ("half", "the weights are torch.float16, not fp32; pass --dtype fp16"),
        ("text", "returned a str, not a torch.nn.Module"),
        ("nothing", "bad.py:nothing() returned None"),
        ("Counts", "or keeps state"),
        # The same inputs overwrite the state that they left.
        ("Keeps", "or keeps state"),
        ("Random", "it draws random numbers (is dropout still on?)"),
        ("Changes", "the model changes its inputs"),
        # No worker that measures the CPU sees a GPU: see unit/backends/test_worker_environment.py.
        ("OnGpu", "cannot run with inputs f32[4,16]: "),
        ("misfit", "cannot run with inputs f32[4,16]: RuntimeError: mat1 and mat2"),
    ],
)
def test_a_module_that_cannot_be_measured_gives_the_reason(prepared, tmp_path, name, words):
    (tmp_path / "bad.py").write_text(BAD)
    answer = prepared(f"bad.py:{name}", "f32[4,16]")
    assert answer["type"] == "error"
    assert words in answer["message"]


def test_a_jax_model_in_another_type_is_refused(prepared, tmp_path):
    (tmp_path / "jax_net.py").write_text(
        """
import jax.numpy as jnp

def create_model():
    return (lambda params, x: x @ params.astype(x.dtype)), jnp.ones((16, 2), jnp.bfloat16)
"""
    )
    answer = prepared("jax_net.py", "f32[4,16]", backend="jax_xla", framework="jax")
    assert answer["type"] == "error"
    assert "the weights are bf16, not float32; return float32, or pass" in answer["message"]


DOORS = """
import numpy as np
import torch
import shapes

class Turns(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("turns", torch.polar(torch.ones(16), torch.linspace(0, 3, 16)))

    def forward(self, x):
        return torch.view_as_real(x * self.turns).flatten(1)

class Net(torch.nn.Module):
    def forward(self, x):
        return x.sin(), shapes.Out(x.cos(), x.tanh())

def create_model():
    return Net()

def compiled():
    made = torch.compile(Net())
    def refuse(*_, **__):
        raise AssertionError("the compiled module was called")
    made.forward = refuse
    return made
"""
SHAPES = """
from dataclasses import dataclass
from typing import Any

@dataclass
class Out:
    a: Any
    b: Any
"""


@pytest.mark.parametrize(("name", "outputs"), [("create_model", 3), ("compiled", 3), ("Turns", 1)])
def test_what_a_module_holds_and_returns_is_kept(prepared, tmp_path, name, outputs):
    (tmp_path / "doors.py").write_text(DOORS)
    (tmp_path / "shapes.py").write_text(SHAPES)
    answer = prepared(f"doors.py:{name}", "f32[4,16]")
    assert answer["type"] != "error", answer
    assert len(answer["files"]["truth"]) == outputs
    if name == "Turns":
        x = np.load(tmp_path / "inputs" / "input_0.npy").astype(np.float64)
        turned = x * np.exp(1j * np.linspace(0, 3, 16))
        due = np.stack([turned.real, turned.imag], -1).reshape(4, -1)
        assert np.abs(np.load(tmp_path / "truth" / "output_0.npy") - due).max() < 1e-6


def test_a_string_named_model_is_not_the_model(prepared, tmp_path):
    (tmp_path / "net.py").write_text(
        "import torch\nmodel = 'resnet18'\nclass Net(torch.nn.Module):\n"
        "    def forward(self, x): return x.sin()\n"
    )
    assert prepared("net.py", "f32[4,16]")["type"] != "error"


def test_code_that_trains_runs_as_in_a_script(brought_run, tmp_path):
    """In a package whose name has a space; it fits a model at import and at creation."""
    need("onnxruntime")
    folder = tmp_path / "pack"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "layers.py").write_text("import torch\nLinear = torch.nn.Linear\n")
    (folder / "my net.py").write_text(FITTED)
    run = brought_run("pack/my net.py", backend="pt_inductor:eager,onnxruntime")
    assert run.code == 0, run.out + run.err
    assert run.statuses == {
        "MY_NET_FP32_PT pt_inductor:eager": "ok",
        "MY_NET_FP32_PT onnxruntime:default": "ok",
    }
    assert "my net.py trains a model in line 18 whenever it is imported" in run.out + run.err


def test_a_module_that_takes_gradients_itself_is_measured(prepared, tmp_path):
    (tmp_path / "forces.py").write_text(FORCES)
    answer = prepared("forces.py")
    assert answer["type"] != "error", answer
    assert len(answer["files"]["truth"]) == 2


def test_a_truth_that_rounds_is_reported(prepared, tmp_path):
    (tmp_path / "bad.py").write_text(BAD)
    rounding = prepared("bad.py:Rounds", "f32[4,16]")
    assert rounding["remark"].startswith("parts of the model compute in bfloat16, float32, regard")
    assert rounding["without_second"] is None
    shutil.copy(ROOT / "docs" / "examples" / "my_net.py", tmp_path)
    assert prepared("my_net.py")["remark"] is None


def test_a_failure_is_a_status_that_explains_how_to_run_it_again(brought_run, tmp_path):
    (tmp_path / "bad.py").write_text(BAD)
    run = brought_run("bad.py:raises", "--input", "f32[4,16]")
    assert run.code == 1
    assert run.statuses == {"BAD_RAISES_FP32_PT pt_inductor:eager": "failed"}
    assert f"{tmp_path}/bad.py:raises --dtype fp32 --framework pytorch --input " in run.out


@pytest.mark.parametrize("name", ["create_model", "pair", "gram"])
def test_jax_takes_modules_pairs_and_functions(prepared, tmp_path, name):
    need("jax")
    (tmp_path / "net.py").write_text(JAX)
    answer = prepared(f"net.py:{name}", backend="jax_xla", framework="jax")
    assert answer["type"] != "error", answer
    (truth,) = answer["files"]["truth"]
    assert truth["dtype"] == "f64"


def test_keras_is_made_again_in_float64(prepared, tmp_path):
    need("tensorflow")
    (tmp_path / "net.py").write_text(KERAS)
    answer = prepared("net.py", backend="tf_xla", framework="tensorflow")
    assert answer["type"] != "error", answer
    assert answer["files"]["truth"][0]["dtype"] == "f64"
    answer = prepared("net.py:Fixed", backend="tf_xla", framework="tensorflow")
    assert "cannot create the model in float64" in answer["without_float64"]


def test_a_directory_of_another_size_is_one_workload_in_torch_and_jax(
    brought_run, prepared, tmp_path, environment
):
    """A directory from `save_pretrained`; a wrong rule for it would give a wrong output."""
    need("jax")
    directory = tmp_path / "my-bert"
    made = f"""
import transformers
config = transformers.BertConfig(
    vocab_size=300, hidden_size=48, num_hidden_layers=3, num_attention_heads=4,
    intermediate_size=80, max_position_embeddings=64)
transformers.set_seed(0)
transformers.BertModel(config).save_pretrained({str(directory)!r}, max_shard_size="60KB")
"""
    run_script(made, [], environment, framework="torch")
    assert not (directory / "model.safetensors").exists()  # in several files
    run = brought_run("my-bert", "--seq-len", "16", backend="pt_inductor:eager,jax_xla")
    assert run.code == 0, run.out + run.err
    assert set(run.statuses) == {
        "MY_BERT_FP32_PT_SEQLEN16 pt_inductor:eager",
        "MY_BERT_FP32_JAX_SEQLEN16 jax_xla:xla",
    }
    [one, other] = run.document["benchmarks"]
    assert one["definition"]["workload"] == other["definition"]["workload"]
    assert "my-bert-fp32-1x16xi32" in run.out
    cbs = [sys.executable, "-m", "comparative_benchmark"]
    repro = ["repro", str(run.output), "MY_BERT_FP32_JAX.+", "-o", str(tmp_path / "repro")]
    done = subprocess.run(
        [*cbs, *repro], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "repro" / "README.md").exists()
    # Models without a rule run through transformers; an unknown type gives the reason.
    config = json.loads((directory / "config.json").read_text())
    for kind, words in (("berty", "model_type 'berty'; did you mean bert?"), ("bert", "")):
        config |= {"model_type": kind, "hidden_act": "relu"}
        (directory / "config.json").write_text(json.dumps(config))
        answer = prepared("my-bert")
        assert answer["type"] == ("error" if words else "prepare")
        assert words in answer.get("message", "")


def test_a_picture_is_prepared_as_transformers_own_processors_do(tmp_path, environment):
    need("torch")
    run_script(PICTURES, [str(tmp_path / "errors.json")], environment, framework="torch")
    errors = json.loads((tmp_path / "errors.json").read_text())
    assert len(errors) == 6
    assert max(errors.values()) < 1e-6, errors


def test_the_guides_yaml_takes_a_file(tmp_path, my_net, environment):
    (tmp_path / "c.yml").write_text(
        "quantization_config_recipe_names: [baseline]\n"
        "model_params: {name: mine, model_type: 'my_net.py:MyNet', use_torch_compile: false, "
        "high_precision_dtype: torch.float32, device: cpu}\n"
    )
    done = subprocess.run(
        [
            *(sys.executable, "-m", "comparative_benchmark", "micro", "run", *COUNTS),
            *("--config", str(tmp_path / "c.yml"), "-o", str(tmp_path / "r.json")),
        ],
        cwd="/",  # paths are relative to the YAML
        env={**environment, "PYTHONPATH": os.environ.get("PYTHONPATH", "")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (row,) = csv.DictReader((tmp_path / "r.csv").read_text().splitlines())
    assert (row["name"], row["model_type"], row["status"]) == ("mine", "my_net.py:MyNet", "ok")


WITHOUT_FLOAT64 = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = torch.nn.LSTM(16, 8, batch_first=True)

class MakesItsState(Net):
    def forward(self, x):
        state = torch.zeros(1, x.shape[0], 8), torch.zeros(1, x.shape[0], 8)
        return self.rnn(x, state)[0]

class MakesItsOwnType(Net):
    def forward(self, x):
        state = torch.zeros(2, 1, x.shape[0], 8, dtype=torch.float32)
        return self.rnn(x, (state[0], state[1]))[0]

class ChecksItsType(Net):
    def forward(self, x):
        if x.dtype != torch.float32:
            raise TypeError("expected float32")
        return self.rnn(x)[0]

class Table(torch.nn.Module):
    def forward(self, x):
        return x + torch.arange(16, dtype=torch.float32).div(10).sin()

class CoarseTable(torch.nn.Module):
    def forward(self, x):
        return x + torch.arange(16, dtype=torch.bfloat16).div(10).sin()

def fitted():
    torch.manual_seed(0)
    net = torch.nn.Linear(16, 2)
    net(torch.ones(1, 16)).sum().backward()
    with torch.no_grad():
        net.weight -= 0.1 * net.weight.grad
    return net

def double(): return torch.nn.Linear(16, 2).double()

def example_inputs(): return torch.randn(4, 5, 16)
"""


@pytest.mark.parametrize("name", ["MakesItsState", "MakesItsOwnType", "Table"])
def test_tensors_made_in_forward_follow_the_float64_run(prepared, tmp_path, name):
    (tmp_path / "net.py").write_text(WITHOUT_FLOAT64)
    found = prepared(f"net.py:{name}")
    assert (found["without_float64"], found["remark"]) == (None, None), found
    assert [file["dtype"] for file in found["files"]["truth"]] == ["f64"]


def test_a_model_without_a_float64_run_is_judged_by_plain_runs(brought_run, tmp_path):
    (tmp_path / "net.py").write_text(WITHOUT_FLOAT64)
    run = brought_run("net.py:ChecksItsType", backend="pt_inductor:eager,onnxruntime")
    assert set(run.statuses.values()) == {"ok"}
    for record in run.document["benchmarks"]:
        (metrics,) = record["metrics"].values()
        assert "TypeError: expected float32" in metrics["without_float64"]
        assert metrics["verification"]["relative_rmse"] < 1e-6


def test_a_coarser_table_is_remarked(prepared, tmp_path):
    (tmp_path / "net.py").write_text(WITHOUT_FLOAT64)
    remark = prepared("net.py:CoarseTable")["remark"]
    assert remark == "parts of the model compute in bfloat16, regardless of the weights' type"


def test_a_float64_model_names_the_way_out(prepared, tmp_path):
    (tmp_path / "net.py").write_text(WITHOUT_FLOAT64)
    message = prepared("net.py:double")["message"]
    assert "the weights are torch.float64, not fp32; return it in float32" in message


def test_a_model_may_be_fitted_while_it_is_made(brought_run, tmp_path):
    (tmp_path / "net.py").write_text(WITHOUT_FLOAT64)
    run = brought_run("net.py:fitted")
    assert set(run.statuses.values()) == {"ok"}


OWN_PACKAGE = """
import numpy as np

class Model:
    def generate_default_inputs(self): return np.linspace(-1, 1, 12, dtype=np.float32)
    def preprocess(self, raw): return (raw.reshape(3, 4),)
    def forward(self, x): {forward}
    def postprocess(self, outputs): return outputs

def create_model(): return Model()
"""
PREPARE_OWN = """
import json, pathlib, sys
from comparative_benchmark.backends.api import get_backend
from comparative_benchmark.engine.worker.executor import Executor
backend, target = sys.argv[1:]
sys.path.insert(0, target)
sys.modules.pop("own_model", None)
answer = Executor(lambda _: None).handle({"command": "prepare", "id": 0, "arguments": dict(
    module_path="own_model", parameters={}, reference=get_backend(backend).reference,
    directory=target)})
pathlib.Path(target, "answer.json").write_text(json.dumps(answer))
"""


@pytest.mark.parametrize(
    ("backend", "framework", "forward", "words"),
    [
        (
            *("jax_xla", "jax"),
            "import jax.numpy as jnp; return jnp.tanh(jnp.asarray(x, jnp.float32))",
            "apply(params, *inputs)",
        ),
        ("tf_xla", "tensorflow", "import tensorflow as tf; return tf.tanh(x)", "as_float64()"),
        # NumPy does not count bfloat16 among the floating-point types.
        (
            *("jax_xla", "jax"),
            "import jax.numpy as jnp; return jnp.tanh(x).astype(jnp.bfloat16)",
            "computes in bfloat16",
        ),
        (
            *("tf_xla", "tensorflow"),
            (
                "import tensorflow as tf; return tf.cast(tf.tanh(x), tf.bfloat16)\n"
                "    def as_float64(self): return self"
            ),
            "computes in bfloat16",
        ),
        (
            *("pt_inductor", "torch"),
            "import torch; return (x @ torch.eye(4)).to(torch.bfloat16)",
            "forward computes in bfloat16",
        ),
    ],
)
def test_a_model_of_another_package_may_lack_a_float64_run(
    environment, tmp_path, backend, framework, forward, words
):
    need(framework)
    (tmp_path / "own_model.py").write_text(OWN_PACKAGE.format(forward=forward))
    run_script(PREPARE_OWN, [backend, str(tmp_path)], environment, framework=framework)
    answer = json.loads((tmp_path / "answer.json").read_text())
    assert answer["type"] != "error", answer
    assert words in answer["without_float64"]


# Each with its inputs; the order of backends must not decide who computes the truth.
KERAS_KINDS = {
    "sequential": """
    return keras.Sequential([keras.layers.Dense(8, activation="gelu"), keras.layers.Dropout(0.3)])
""",
    "functional": """
    one, other = keras.Input((16,), name="z"), keras.Input((16,), name="a")
    hidden = keras.layers.BatchNormalization()(keras.layers.Concatenate()([one, other]))
    return keras.Model([one, other], keras.layers.Dense(8)(hidden))
""",
    "subclassed": """
    class Net(keras.Model):
        def __init__(self):
            super().__init__()
            self.parts = [keras.layers.Dense(8), keras.layers.LayerNormalization()]

        def call(self, x, training=False):
            for part in self.parts:
                x = part(x)
            return x
    return Net()
""",
}


@pytest.mark.parametrize(
    ("kind", "backends", "inputs"),
    [
        ("sequential", "tf_xla:graph,tflite:native", 1),
        ("functional", "tflite:native,tf_xla:graph", 2),
        ("subclassed", "tflite:native,tf_xla:graph", 1),
    ],
)
def test_a_keras_model_is_converted_to_tflite_and_judged_by_tensorflow(
    brought_run, tmp_path, kind, backends, inputs
):
    need("tensorflow")
    (tmp_path / "net.py").write_text(f"import keras\n\ndef create_model():{KERAS_KINDS[kind]}")
    given = ["--input", "f32[4,16]"] * inputs
    run = brought_run("net.py", *given, "--generate-artifacts", backend=backends)
    assert set(run.statuses.values()) == {"ok"}, run.out + run.err
    for record in run.document["benchmarks"]:
        (metrics,) = record["metrics"].values()
        assert metrics["truth_source"]["backend"] == "tf_xla"
