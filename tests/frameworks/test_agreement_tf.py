"""BERT, ResNet, ViT and EfficientNet in TensorFlow are the models that the others are."""

import json
import subprocess
import sys

import numpy as np
import pytest
from agreement_support import load, need, relative
from framework_process import run_script

from comparative_benchmark.judge.verification import verify

pytestmark = pytest.mark.frameworks

SCRIPT = """
import importlib, json, sys
from pathlib import Path
from comparative_benchmark.backends.api import load_object
from openxla.benchmark.artifacts import arrays
module, reference, target, parameters = sys.argv[1:]
model = importlib.import_module(module).create_model(**json.loads(parameters))
inputs = model.preprocess(model.generate_default_inputs())
truth, same_type = load_object(reference)(model, inputs)
compiled = same_type
if ".tf." in module:
    import tensorflow as tf
    compiled = [tf.function(model.forward, jit_compile=True)(*inputs).numpy()]
for stem, values in (
    ("input", inputs), ("truth", truth), ("reference", same_type), ("compiled", compiled)
):
    arrays.save_all(Path(target), stem, values)
"""
REFERENCES = {
    "jax": "comparative_benchmark.jax_xla.reference:compute",
    "tf": "comparative_benchmark.tf_xla.reference:compute",
}
TINY = {
    "bert": {"model_name": "bert-tiny", "seq_len": 32},
    "resnet": {"model_name": "resnet-tiny"},
    "vit": {"model_name": "vit-tiny"},
    "efficientnet": {"model_name": "efficientnet-tiny"},
}
CASES = {
    f"{name}-{data_type}": (
        name,
        {**parameters, "data_type": data_type, "batch_size": 4 if data_type == "fp32" else 1},
    )
    for name, parameters in TINY.items()
    for data_type in (("fp32", "fp16", "bf16") if name == "bert" else ("fp32", "bf16"))
}

BROKEN = """
import importlib, sys
import attrs
from openxla.benchmark.models import architectures, checkpoints
name, model_name, tensor_name, change = sys.argv[1:]
module = importlib.import_module(f"openxla.benchmark.models.tf.{name}.{name}_model")
architecture = type(architectures.get(name))
tensors, load, names = architecture.tensors, checkpoints.load_tensors, architecture.module_names
def broken_tensors(self, config):
    for tensor in tensors(self, config):
        if tensor.name != tensor_name:
            yield tensor
        elif change == "transpose":
            yield tensor._replace(shape=tensor.shape[::-1])
def without(*arguments):
    found = load(*arguments)
    return {name: found[name] for name in found if name != tensor_name}
try:
    if change == "remove":
        checkpoints.load_tensors = without
    elif change == "rename":
        architecture.module_names = (*names, (r"class_token", "klass"))
    else:
        architecture.tensors = broken_tensors
        checkpoints.recipe_digest.cache_clear()
    module.create_model(model_name=model_name)
finally:
    # Other scripts of this process build the same architecture.
    architecture.tensors, checkpoints.load_tensors = tensors, load
    architecture.module_names = names
    checkpoints.recipe_digest.cache_clear()
"""


@pytest.fixture(scope="module", params=CASES)
def folders(request, tmp_path_factory, environment):
    """Folders with inputs, truth, reference and compiled run of each framework."""
    need("tensorflow")
    name, parameters = CASES[request.param]
    found = {}
    for framework, reference in REFERENCES.items():
        found[framework] = tmp_path_factory.mktemp(f"{request.param}-{framework}")
        module = f"openxla.benchmark.models.{framework}.{name}.{name}_model"
        arguments = [module, reference, str(found[framework]), json.dumps(parameters)]
        run_script(SCRIPT, arguments, environment, framework=framework)
    return found


def test_float64_runs_agree(folders):
    truths = load(folders, "truth")
    [jax], [tf] = truths["jax"], truths["tf"]
    assert tf.dtype == jax.dtype == np.float64
    assert tf.shape == jax.shape
    # The bound for all models is 1e-9; these are far below it.
    assert relative(tf, jax) < 1e-12


def test_inputs_are_the_same_bytes(folders):
    inputs = load(folders, "input")
    for tf, jax in zip(inputs["tf"], inputs["jax"], strict=True):
        assert (tf.dtype, tf.shape, tf.tobytes()) == (jax.dtype, jax.shape, jax.tobytes())


@pytest.mark.parametrize(("judge", "candidate"), [("jax", "reference"), ("jax", "compiled")])
def test_runs_in_the_models_type_pass_verification_by_the_other_framework(
    folders, judge, candidate
):
    outputs = [folders["tf"] / f"{candidate}_0.npy"]
    truth, reference = ([folders[judge] / f"{stem}_0.npy"] for stem in ("truth", "reference"))
    verdict = verify(outputs, truth, reference)
    assert verdict.passed, verdict
    assert verdict.relative_rmse > 0


def test_the_other_framework_passes_verification_by_tensorflow(folders):
    truth, reference = ([folders["tf"] / f"{stem}_0.npy"] for stem in ("truth", "reference"))
    verdict = verify([folders["jax"] / "reference_0.npy"], truth, reference)
    assert verdict.passed, verdict


@pytest.mark.parametrize(
    ("name", "tensor", "change", "said"),
    [
        ("bert", "encoder.layer.1.output.dense.bias", "remove", "lacks"),
        ("bert", "encoder.layer.0.intermediate.dense.weight", "transpose", "of another shape"),
        ("efficientnet", "efficientnet.encoder.top_bn.running_var", "remove", "lacks"),
        ("vit", "vit.embeddings.cls_token", "forget", "no weight is for"),
        ("vit", "vit.embeddings.cls_token", "rename", "there is no variable"),
    ],
)
def test_weights_that_do_not_fit_are_named(name, tensor, change, said, environment):
    need("tensorflow")
    with pytest.raises(RuntimeError) as caught:
        run_script(
            BROKEN, [name, TINY[name]["model_name"], tensor, change], environment, framework="tf"
        )
    last = str(caught.value).strip().splitlines()[-1]
    assert last.startswith("ValueError: the weights do not fit")
    assert said in last
    assert ("class_token" if change == "forget" else tensor) in last


def test_an_input_of_another_type_is_an_error_not_a_cast(environment):
    need("tensorflow")
    script = """
import numpy as np
from openxla.benchmark.models.tf.resnet.resnet_model import create_model
create_model(model_name="resnet-tiny", data_type="bf16").forward(np.ones((1, 3, 32, 32), "f4"))
"""
    with pytest.raises(RuntimeError, match="bfloat16"):
        run_script(script, [], environment, framework="tf")


def test_another_backend_of_keras_is_refused_with_the_fix(environment):
    need("tensorflow")
    done = subprocess.run(
        [sys.executable, "-c", "import openxla.benchmark.models.tf.keras_model"],
        env={**environment, "KERAS_BACKEND": "jax"},
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "set KERAS_BACKEND=tensorflow" in done.stderr.splitlines()[-1]
