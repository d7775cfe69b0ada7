"""A mistake in one layer of one implementation is found, and the layer is named."""

import json
import subprocess
import sys

import pytest
from agreement_support import need
from tests_support import python_path

pytestmark = pytest.mark.frameworks

# Our BERT in JAX with a mistake in the second of its two layers: a wrong epsilon in a norm, or
# another activation.
SUITE = """
from openxla.benchmark import def_types, testdata

ALL_BENCHMARKS = [
    def_types.BenchmarkCase.build(
        input_data=testdata.INPUT_DATA_MODEL_DEFAULT,
        model=def_types.Model(
            name=f"WRONG_{mistake}",
            model_impl=def_types.ModelImplementation(
                name="WRONG",
                framework_type=def_types.ModelFrameworkType.JAX,
                module_path="wrong_model",
                architecture="bert",
            ),
            model_parameters={
                "mistake": mistake,
                "model_name": "bert-tiny",
                "seq_len": 32,
                "batch_size": 1,
                "data_type": "fp32",
            },
        ),
    )
    for mistake in ("EPSILON", "ACTIVATION")
]
"""
MODEL = """
import jax
from openxla.benchmark.models.architectures import bert
from openxla.benchmark.models.jax import bert as bert_model
from openxla.benchmark.models.jax.flax_model import FlaxModel


class Layer(bert_model.Layer):
    def __call__(self, x, bias):
        x = self.attention_norm(x + self.attention(x, bias))
        return self.output_norm(x + self.down(jax.nn.gelu(self.up(x), approximate=True)))


def epsilon(config, rngs):
    model = bert_model.Bert(config, rngs)
    model.layers[1].attention_norm.epsilon = 1e-3
    return model


def activation(config, rngs):
    model = bert_model.Bert(config, rngs)
    model.layers[1] = Layer(config, rngs)
    return model


def create_model(*, mistake, **parameters):
    build = {"EPSILON": epsilon, "ACTIVATION": activation}[mistake]
    return FlaxModel(bert.ARCHITECTURE, parameters, build)
"""
MISTAKES = {
    "EPSILON": (
        "encoder.layer.1.attention.output.LayerNorm",
        "encoder.layer.1.attention.output.dense",
    ),
    "ACTIVATION": ("encoder.layer.1.output.dense", "encoder.layer.1.intermediate.dense"),
}


def _parity(tmp_path, environment, *arguments):
    output = tmp_path / "matrix.json"
    done = subprocess.run(
        [sys.executable, "-m", "comparative_benchmark", "parity", "-o", output, *arguments],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    return done, json.loads(output.read_text())


@pytest.fixture(scope="module", autouse=True)
def _installed():
    need("torch")
    need("flax")


@pytest.mark.parametrize(
    "mistakes",
    [["EPSILON"], pytest.param(["EPSILON", "ACTIVATION"], marks=pytest.mark.nightly)],
    ids=["one", "two"],
)
def test_the_layer_with_the_mistake_is_named(tmp_path, environment, mistakes):
    (tmp_path / "wrong_suite.py").write_text(SUITE)
    (tmp_path / "wrong_model.py").write_text(MODEL)
    good = "models/BERT_TINY_FP32_PT_32XI32_BATCH1/.+_DEFAULT"
    done, document = _parity(
        tmp_path,
        {**environment, "PYTHONPATH": python_path(tmp_path)},
        *("--suite", "wrong_suite", "--root-dir", str(tmp_path / "root")),
        *("--backend", "pt_inductor:eager,jax_xla", "--framework", "pytorch,jax"),
        # The good case comes first: it makes the truth.
        *("-name", f"({good}|models/WRONG_({'|'.join(mistakes)})/.+)"),
    )
    assert done.returncode == 2, done.stdout + done.stderr
    statuses = {
        cell["case"].split("/")[1]: cell["status"]
        for cell in document["cells"]
        if cell["status"] != "unsupported"
    }
    wrong = {f"WRONG_{mistake}": "wrong_output" for mistake in mistakes}
    assert statuses == {"BERT_TINY_FP32_PT_32XI32_BATCH1": "ok", **wrong}
    drifts = document["drift"]
    frameworks = [(item["reference"], item["candidate"]) for item in drifts]
    assert frameworks == [("pytorch", "jax")] * len(mistakes)
    for drift, mistake in zip(drifts, mistakes, strict=True):
        first, last_good = MISTAKES[mistake]
        assert (drift["first"], drift["last_good"]) == (first, last_good)
        assert drift["first_error"] > 1e-6
        said = f"drift apart in float64 after {last_good}: the first layer that differs is {first}"
        assert said in done.stdout


MODELS = ("BERT_TINY_FP32_JAX_32XI32_BATCH1", "RESNET_TINY_FP32_JAX_3X32X32XF32_BATCH1")


@pytest.mark.nightly
def test_right_implementations_agree_layer_by_layer(tmp_path, environment):
    names = "|".join(MODELS)
    done, document = _parity(
        tmp_path,
        environment,
        *("--drift", "-name", f"models/({names})/.+_DEFAULT"),
        *("--backend", "pt_inductor:eager", "--framework", "pytorch,jax"),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(document["drift"]) == len(MODELS)
    for drift in document["drift"]:
        assert drift["problem"] is None
        assert drift["first"] is None, drift
        assert drift["output_error"] < 1e-9
        assert drift["compared"] - drift["not_comparable"] > 8
