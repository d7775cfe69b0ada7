"""A mistake in one layer of one implementation is found, and the layer is named."""

import json
import subprocess
import sys

import pytest
from agreement_support import need

pytestmark = pytest.mark.frameworks

# Our BERT in JAX with one mistake in the second of its two layers.
BROKEN = """
from flax import nnx
from openxla.benchmark import def_types, testdata
from openxla.benchmark.def_types import BenchmarkCase, Model, ModelImplementation

ALL_BENCHMARKS = [
    BenchmarkCase.build(
        input_data=testdata.INPUT_DATA_MODEL_DEFAULT,
        model=Model(
            name="BROKEN_BERT",
            model_impl=ModelImplementation(
                name="BROKEN",
                framework_type=def_types.ModelFrameworkType.JAX,
                module_path="broken_model",
                architecture="bert",
            ),
            model_parameters=dict(
                model_name="bert-tiny", seq_len=32, batch_size=1, data_type="fp32"
            ),
        ),
    )
]
"""
MODEL = """
import jax
from openxla.benchmark.models.architectures import bert
from openxla.benchmark.models.jax.bert import bert_model
from openxla.benchmark.models.jax.flax_model import FlaxModel


class Layer(bert_model.Layer):
    def __call__(self, x, bias):
        x = self.attention_norm(x + self.attention(x, bias))
        return self.output_norm(x + self.down(jax.nn.gelu(self.up(x), approximate=True)))


def build(config, rngs):
    model = bert_model.Bert(config, rngs)
    {mistake}
    return model


def create_model(**parameters):
    return FlaxModel(bert.ARCHITECTURE, parameters, build, bert_model.weights)
"""
MISTAKES = {
    "epsilon": (
        "model.layers[1].attention_norm.epsilon = 1e-3",
        "encoder.layer.1.attention.output.LayerNorm",
        "encoder.layer.1.attention.output.dense",
    ),
    "activation": (
        "model.layers[1] = Layer(config, rngs)",
        "encoder.layer.1.output.dense",
        "encoder.layer.1.intermediate.dense",
    ),
}


def _parity(tmp_path, environment, *arguments):
    output = tmp_path / "matrix.json"
    done = subprocess.run(
        [sys.executable, "-m", "comparative_benchmark.cli", "parity", "-o", output, *arguments],
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


@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_layer_with_the_mistake_is_named(mistake, tmp_path, environment):
    line, first, last_good = MISTAKES[mistake]
    (tmp_path / "broken_suite.py").write_text(BROKEN)
    (tmp_path / "broken_model.py").write_text(MODEL.format(mistake=line))
    root = tmp_path / "root"
    good = "models/BERT_TINY_FP32_PT_32XI32_BATCH1/.+"
    done, document = _parity(
        tmp_path,
        {**environment, "PYTHONPATH": str(tmp_path)},
        *("--suite", "broken_suite", "--root-dir", str(root)),
        *("--backend", "pt_inductor:eager,jax_xla", "--framework", "pytorch,jax"),
        # The good case comes first: it makes the truth.
        *("-name", f"({good}|models/BROKEN_BERT/.+)"),
    )
    assert done.returncode == 2, done.stdout + done.stderr
    statuses = {
        (cell["framework"], cell["competitor"]): cell["status"]
        for cell in document["cells"]
        if cell["status"] != "unsupported"
    }
    assert statuses == {
        ("pytorch", "pt_inductor:eager"): "ok",
        ("jax", "jax_xla:xla"): "wrong_output",
    }
    [drift] = document["drift"]
    assert (drift["reference"], drift["candidate"]) == ("pytorch", "jax")
    assert (drift["first"], drift["last_good"]) == (first, last_good)
    assert drift["first_error"] > 1e-6
    assert f"drift apart after {last_good}: the first layer that differs is {first}" in done.stdout


MODELS = (
    "BERT_TINY_FP32_JAX_32XI32_BATCH1",
    "RESNET_TINY_FP32_JAX_3X32X32XF32_BATCH1",
    "LLAMA_TINY_GREEDY_FP32_JAX_1X16XI32_8XI32",
)


def test_right_implementations_agree_layer_by_layer(tmp_path, environment):
    names = "|".join(MODELS)
    done, document = _parity(
        tmp_path,
        environment,
        *("--drift", "-name", f"models/({names})/.+"),
        *("--backend", "pt_inductor:eager", "--framework", "pytorch,jax"),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(document["drift"]) == len(MODELS)
    for drift in document["drift"]:
        assert drift["problem"] is None
        assert drift["first"] is None, drift
        assert drift["output_error"] < 1e-9
        assert drift["compared"] - drift["not_comparable"] > 8
