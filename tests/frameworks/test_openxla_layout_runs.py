"""Definitions and models of another checkout of the OpenXLA suite run as they are."""

import pytest

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


def test_models_of_two_frameworks_are_run_and_verified(tmp_path, cbs_run):
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
    done = cbs_run(
        *("-name", "models/OWN.+", "--suite-dir", str(root / "comparative_suite")),
        *("--backend", "pt_inductor:eager,jax_xla,onnxruntime", "-w", "1", "-iter", "2"),
    )
    assert done.code == 0, done.out + done.err
    assert done.statuses == {
        "OWN_FP32_JAX_BATCH4 jax_xla:xla": "ok",
        "OWN_FP32_PT_BATCH4 pt_inductor:eager": "ok",
        "OWN_FP32_PT_BATCH4 onnxruntime:default": "ok",
    }, done.out
