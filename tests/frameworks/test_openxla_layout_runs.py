"""Definitions and models of another checkout of the OpenXLA suite run unmodified."""

import pytest
from tests_support import python_path, run_cbs

pytestmark = pytest.mark.frameworks

DEFINITIONS = """
from openxla.benchmark import def_types
from openxla.benchmark.comparative_suite import utils
IMPL = def_types.ModelImplementation(
    name="OWN_{label}", tags=["mlp"], framework_type=def_types.ModelFrameworkType.{framework},
    module_path=f"{{utils.MODELS_MODULE_PATH}}.{folder}.own.own_model")
OWN = utils.build_batch_models(
    template=utils.ModelTemplate(
        name=utils.BATCH_NAME("OWN_FP32_{label}"), tags=["fp32", utils.BATCH_TAG], model_impl=IMPL,
        model_parameters={{"batch_size": utils.BATCH_SIZE_PARAM, "data_type": "fp32"}}),
    batch_sizes=[4])
"""
BENCHMARKS = """
from openxla.benchmark.comparative_suite import utils
from openxla.benchmark.comparative_suite.{folder} import model_definitions
ALL_BENCHMARKS = list(
    utils.build_batch_benchmark_cases(
        batch_models=model_definitions.OWN, verify_parameters={{}}, batch_sizes=[4]).values())
"""
PYTORCH = """
import torch
from openxla.benchmark.models import model_interfaces

class Own(model_interfaces.InferenceModel, torch.nn.Module):
    def __init__(self, batch_size):
        super().__init__()
        torch.manual_seed(0)
        self.batch_size, self.layer = batch_size, torch.nn.Linear(16, 8)
    def generate_default_inputs(self):
        return (torch.linspace(-1, 1, 16 * self.batch_size).reshape(-1, 16),)
    def preprocess(self, raw_input):
        return raw_input
    def forward(self, *inputs):
        return (torch.nn.functional.gelu(self.layer(*inputs)),)
    def postprocess(self, outputs):
        return outputs

def create_model(batch_size=1, data_type="fp32", **_unused_params):
    return Own(batch_size).to(torch.float32)
"""
JAX = """
import jax, jax.numpy as jnp
from openxla.benchmark.models.jax import jax_model_interface
from openxla.benchmark.models.jax.own.width import WIDTH

class Own(jax_model_interface.JaxInferenceModel):
    def __init__(self, batch_size):
        self.batch_size = batch_size
        self.weights = jax.random.normal(jax.random.key(0), (WIDTH, 8))
    def generate_default_inputs(self):
        return (jnp.linspace(-1, 1, WIDTH * self.batch_size).reshape(-1, WIDTH),)
    def preprocess(self, raw_input):
        return raw_input
    def apply(self, *inputs):
        return (jax.nn.gelu(inputs[0] @ self.weights),)
    def forward(self, *inputs):
        return self.apply(*inputs)

def create_model(batch_size=1, data_type="fp32", **_unused_params):
    return Own(batch_size)
"""
# It takes two raw inputs, fixes its type where it is made, holds its parameters itself, and
# compiles something twice while it is made.
PINNED = """
import jax, jax.numpy as jnp
from openxla.benchmark.models.jax import jax_model_interface

class Pinned(jax_model_interface.JaxInferenceModel):
    def __init__(self, shape):
        assert isinstance(shape, tuple), shape
        self.shape, self.params = shape, jax.random.normal(jax.random.key(0), (shape[1], 8))
        for _ in range(2):
            jax.jit(lambda x: x @ x.T)(self.params)
    def generate_default_inputs(self):
        return 1.0, 2.0
    def preprocess(self, low, high):
        return (jnp.linspace(low, high, self.shape[0] * self.shape[1]).reshape(self.shape),)
    def apply(self, x):
        return x.astype(jnp.float32) @ self.params
    def forward(self, x):
        return self.apply(x)

def create_model(shape, **_unused_params):
    return Pinned(shape)
"""
TENSORFLOW = """
import tensorflow as tf
from openxla.benchmark.models import model_interfaces

class Plain(model_interfaces.InferenceModel, tf.Module):
    def __init__(self, shape):
        super().__init__()
        self.shape = shape
        self.weights = tf.Variable(tf.random.stateless_normal((shape[1], 8), seed=(1, 2)))
    def generate_default_inputs(self):
        return 3.0
    def preprocess(self, raw_input):
        count = self.shape[0] * self.shape[1]
        return (tf.reshape(tf.linspace(0.0, raw_input, count), self.shape),)
    @tf.function(jit_compile=True)
    def forward(self, x):
        return tf.nn.relu(tf.matmul(x, self.weights))

def create_model(shape, **_unused_params):
    return Plain(shape)
"""
TFLITE = "converted:BERT_TINY_FP32_JAX_32XI32_BATCH1/model_fp32.tflite"


@pytest.fixture(scope="module")
def environment(session_environment):
    """Variables with a root of this session: the models are not the suite's."""
    return session_environment


@pytest.fixture
def run_in(cbs_run):
    """Runs the cases of a checkout on backends."""

    def run(root, backends):
        done = cbs_run(
            *("-name", "models/OWN.+", "--suite-dir", str(root / "comparative_suite")),
            *("--backend", backends, "-w", "1", "-iter", "2"),
        )
        assert done.code == 0, done.out + done.err
        return done

    return run


@pytest.mark.nightly
def test_models_that_are_not_written_for_us_are_judged_in_their_own_type(tmp_path, run_in):
    root = tmp_path / "openxla" / "benchmark"
    for folder, framework, module, parameters in (
        ("jax", "JAX", "own.pinned", {"shape": [4, 16]}),
        ("tf", "TF_V2", "own.plain", {"shape": (4, 16)}),
        ("tflite", "TFLITE", "tflite_model", {"model_uri": TFLITE}),
    ):
        suite, own = root / "comparative_suite" / folder, root / "models" / folder / "own"
        suite.mkdir(parents=True)
        own.mkdir(parents=True)
        (suite / "benchmark_definitions.py").write_text(
            "from openxla.benchmark import def_types, testdata\n"
            "from openxla.benchmark.comparative_suite import utils\n"
            "IMPL = def_types.ModelImplementation(\n"
            f"    name='OWN', framework_type=def_types.ModelFrameworkType.{framework},\n"
            f"    module_path=f'{{utils.MODELS_MODULE_PATH}}.{folder}.{module}')\n"
            f"MODEL = def_types.Model(name='OWN_{framework}', model_impl=IMPL,\n"
            f"    model_parameters={parameters})\n"
            "ALL_BENCHMARKS = [def_types.BenchmarkCase.build(\n"
            "    model=MODEL, input_data=testdata.INPUT_DATA_MODEL_DEFAULT)]\n"
        )
    (root / "models" / "jax" / "own" / "pinned.py").write_text(PINNED)
    (root / "models" / "tf" / "own" / "plain.py").write_text(TENSORFLOW)
    done = run_in(root, "jax_xla,tf_xla:xla,iree:llvm-cpu,tflite")
    assert done.statuses == {
        "OWN_JAX jax_xla:xla": "ok",
        "OWN_JAX iree:llvm-cpu": "ok",
        "OWN_JAX tflite:native": "ok",
        "OWN_TF_V2 tf_xla:xla": "ok",
        "OWN_TF_V2 iree:llvm-cpu": "ok",
        "OWN_TF_V2 tflite:native": "ok",
        "OWN_TFLITE tflite:native": "ok",
    }, done.out
    assert done.out.count(" agreed ") == 6, done.out
    shapes = [r["definition"]["model_parameters"].get("shape") for r in done.document["benchmarks"]]
    assert shapes.count([4, 16]) == 6


def test_models_of_two_frameworks_are_run_and_verified(tmp_path, run_in):
    root = tmp_path / "openxla" / "benchmark"
    for folder, framework, model in (("pt", "PYTORCH", PYTORCH), ("jax", "JAX", JAX)):
        suite, own = root / "comparative_suite" / folder, root / "models" / folder / "own"
        suite.mkdir(parents=True)
        own.mkdir(parents=True)
        fields = {"label": folder.upper(), "framework": framework, "folder": folder}
        (suite / "model_definitions.py").write_text(DEFINITIONS.format(**fields))
        (suite / "benchmark_definitions.py").write_text(BENCHMARKS.format(folder=folder))
        (own / "own_model.py").write_text(model)
        (own / "width.py").write_text("WIDTH = 16\n")
    done = run_in(root, "pt_inductor:eager,jax_xla,onnxruntime")
    assert done.statuses == {
        "OWN_FP32_JAX_BATCH4 jax_xla:xla": "ok",
        "OWN_FP32_PT_BATCH4 pt_inductor:eager": "ok",
        "OWN_FP32_PT_BATCH4 onnxruntime:default": "ok",
    }, done.out


# As step 1 of the OpenXLA guide writes a model: weights are drawn without a seed, and tokens
# cannot be put off. Deep enough that two right programs differ by more than a rounding.
GUIDE = """
import numpy as np
from openxla.benchmark.models import model_interfaces
{imports}

DEPTH = 24

class NewBaseModel(model_interfaces.InferenceModel):
  def __init__(self, batch_size: int):
    self.batch_size = batch_size
    self.model = Model()

  def generate_default_inputs(self):
    return "The quick brown fox jumps over a lazy dog"

  def preprocess(self, input_text):
    tokens = np.array([[ord(letter) for letter in input_text]], np.int32)
    return {convert}(tokens.repeat(self.batch_size, axis=0))

  def forward(self, batch_tokenized_input):
    return self.model.forward(batch_tokenized_input)

  def postprocess(self, output):
    # No-op.
    return output

{model}
def create_model(batch_size: int, data_type: str):
  return NewBaseModel(batch_size)
"""
GUIDE_PYTORCH = """
class Model(torch.nn.Module):
  def __init__(self):
    super().__init__()
    self.emb = torch.nn.Embedding(128, 64)
    self.layers = torch.nn.ModuleList(torch.nn.Linear(64, 64) for _ in range(DEPTH))
  def forward(self, x):
    x = self.emb(x)
    for layer in self.layers:
      x = x + 3 * torch.tanh(layer(x))
    return x
"""
GUIDE_JAX = """
class Model:
  def __init__(self):
    self.emb, *self.layers = jax.random.normal(jax.random.key(0), (DEPTH + 1, 128, 128)) / 8
  def forward(self, x):
    x = self.emb[x]
    for layer in self.layers:
      x = x + jnp.tanh(x @ layer)
    return x
"""
GUIDE_TENSORFLOW = """
class Model:
  def __init__(self):
    self.emb = tf.keras.layers.Embedding(128, 64, embeddings_initializer="random_normal")
    self.layers = [tf.keras.layers.Dense(64, activation="tanh") for _ in range(DEPTH)]
    self.head = tf.random.normal((64, 64))
  def forward(self, x):
    x = self.emb(x)
    for layer in self.layers:
      x = x + 3 * layer(x)
    return x @ self.head
"""
GUIDE_SUITE = """
from openxla.benchmark import def_types, testdata

ALL_BENCHMARKS = []
for label, framework, module in (
    ("PT", "PYTORCH", "in_pytorch"), ("JAX", "JAX", "in_jax"), ("TF", "TF_V2", "in_tensorflow")):
  IMPL = def_types.ModelImplementation(
      name=f"NEWBASE_{label}", tags=["example"],
      framework_type=def_types.ModelFrameworkType[framework],
      module_path=f"guide_models.{module}")
  MODEL = def_types.Model(
      name=f"NEWBASE_FP32_{label}_BATCH4", tags=["batch-4", "example"], model_impl=IMPL,
      model_parameters={"batch_size": 4, "data_type": "fp32"})
  ALL_BENCHMARKS.append(def_types.BenchmarkCase.build(
      model=MODEL, input_data=testdata.INPUT_DATA_MODEL_DEFAULT))
"""


def test_a_model_as_the_guide_writes_it_runs_in_every_framework(tmp_path, environment):
    package = tmp_path / "guide_models"
    package.mkdir()
    (package / "__init__.py").touch()
    for module, imports, convert, model in (
        ("in_pytorch", "import torch", "torch.from_numpy", GUIDE_PYTORCH),
        ("in_jax", "import jax, jax.numpy as jnp", "jnp.asarray", GUIDE_JAX),
        ("in_tensorflow", "import tensorflow as tf", "tf.constant", GUIDE_TENSORFLOW),
    ):
        text = GUIDE.format(imports=imports, convert=convert, model=model)
        (package / f"{module}.py").write_text(text)
    (package / "suite.py").write_text(GUIDE_SUITE)
    done = run_cbs(
        *("--suite", "guide_models.suite", "-name", "models/NEWBASE.+", "-w", "1", "-iter", "2"),
        *("--backend", "pt_inductor:eager,jax_xla,tf_xla:xla,iree:llvm-cpu,tflite:native"),
        directory=tmp_path,
        environment={**environment, "PYTHONPATH": python_path(tmp_path)},
    )
    assert done.code == 0, done.out + done.err
    assert done.statuses == {
        "NEWBASE_FP32_PT_BATCH4 pt_inductor:eager": "ok",
        "NEWBASE_FP32_JAX_BATCH4 jax_xla:xla": "ok",
        "NEWBASE_FP32_TF_BATCH4 tf_xla:xla": "ok",
    }
    agreed = {
        r["definition"]["model"]: r["metrics"]["framework_level"].get("without_float64")
        for r in done.document["benchmarks"]
    }
    assert agreed["NEWBASE_FP32_PT_BATCH4"] is None
    assert "define `params` and `apply(params, *inputs)`" in agreed["NEWBASE_FP32_JAX_BATCH4"]
    assert "needs an as_float64() method" in agreed["NEWBASE_FP32_TF_BATCH4"]
