"""Recipes in PyTorch take effect and keep their signal; refusals give the reason."""

import json

import pytest
from framework_process import run_script
from tests_support import run_cbs, selected

pytestmark = pytest.mark.frameworks

# Class of the weights, and the share of the model's bytes that may remain, as embeddings do.
WORKING = {
    "int8wo": ("Int8Tensor", 0.75),
    "int8dq": ("Int8Tensor", 0.75),
    "float8wo": ("Float8Tensor", 0.75),
    "intx-8-32": ("IntxUnpackedToInt8Tensor", 0.75),
    "int8_dynamic_activation_intx_weight-4-32": ("IntxUnpackedToInt8Tensor", 0.75),
    "int4wo-32": ("Int4OpaqueTensor", 0.65),
    "mxfp8": ("MXTensor", 0.75),
    "nvfp4": ("NVFP4Tensor", 0.65),
}
REFUSED = {
    "float8dq-tensor": "compute capability",
    "float8dq-row": "compute capability",
    "semi-sparse": "products need an NVIDIA GPU",
    "2:4": "products need an NVIDIA GPU",
    "block-64": "Triton's GPU kernels",
    "intx-4-48": "torchao cannot apply intx-4-48",
}
# One of each kind through real workers: right, compiled, refused, and lossy (1 bit keeps nothing).
RACED = ("eager+int8wo", "inductor+int8dq", "eager+block-64", "eager+intx-1-32")
APPLIED = """
import json, sys
import torch
from comparative_benchmark.backends import recipes
from comparative_benchmark.analysis.verification.error_limits import sqnr_db
from comparative_benchmark.pt_inductor import reference, quantization
from openxla.benchmark.models.pt.bert import create_model

working, parameters = map(json.loads, sys.argv[1:])
model = create_model(**parameters)
inputs = model.preprocess(model.generate_default_inputs())
(truth, *_), _ = reference.compute(model, inputs)
for name, (weight_class, share) in working.items():
    recipe = recipes.parse(name)
    quantized = create_model(**parameters)
    applied = quantization.apply_recipe(quantized, recipe)
    assert applied["name"] == name
    assert applied["weight_class"] == weight_class, applied
    assert applied["layers"] == applied["linear"] > 10, applied
    assert applied["bytes_after"] < share * applied["bytes_before"], applied
    output = quantized.forward(*inputs)
    output = (output[0] if isinstance(output, tuple) else output).double().numpy()
    error = ((output - truth) ** 2).mean() ** 0.5 / (truth ** 2).mean() ** 0.5
    # Further off than rounding to bf16, and no further than the recipe may be.
    assert recipe.min_sqnr_db < sqnr_db(float(error)) < 44, (name, sqnr_db(float(error)))
"""
REFUSING = """
import json, sys
from comparative_benchmark.backends import recipes
from comparative_benchmark.backends.api import UnsupportedError
from comparative_benchmark.pt_inductor import quantization
from openxla.benchmark.models.pt.bert import create_model

refused, parameters = map(json.loads, sys.argv[1:])
for name, reason in refused.items():
    try:
        quantization.apply_recipe(create_model(**parameters), recipes.parse(name))
    except UnsupportedError as error:
        assert reason in str(error), (name, str(error))
    else:
        raise AssertionError(name)
"""
TRAINING = """
import json, sys
import numpy as np
from comparative_benchmark.backends import recipes
from comparative_benchmark.analysis.verification.error_limits import sqnr_db
from comparative_benchmark.pt_inductor import reference, quantization
from openxla.benchmark.models.pt.tensors import as_tensor
from openxla.benchmark.operators.in_torch import create_model

working, parameters = map(json.loads, sys.argv[1:])
model = create_model(**parameters)
inputs = model.preprocess(model.generate_default_inputs())
truth, _ = reference.compute(model, inputs)
for name, weight_class in working.items():
    recipe = recipes.parse(name)
    quantized = create_model(**parameters)
    applied = quantization.apply_recipe(quantized, recipe)
    assert applied["weight_class"] == weight_class, applied
    step = quantized.training_step()
    if "pt_inductor" not in recipe.recipe.trains:
        try:
            step(*map(as_tensor, inputs))
        except RuntimeError as error:
            assert "grad" in str(error) or "derivative" in str(error), error
        else:
            raise AssertionError(name + " has all gradients")
        continue
    for output, exact in zip(step(*map(as_tensor, inputs)), truth, strict=True):
        error = np.linalg.norm(output.double().numpy() - exact) / np.linalg.norm(exact)
        # Products in fp32 would give some 135 dB.
        assert recipe.min_sqnr_db < sqnr_db(float(error)) < 60, (name, sqnr_db(float(error)))
"""
TRAINED = {
    "int8_weight_only_quantized_training": "Int8QuantizedTrainingLinearWeight",
    "int8_mixed_precision_training": "Int8MixedPrecisionTrainingLinear",
    "float8_tensorwise_training": "Float8Linear",
    **{name: WORKING[name][0] for name in ("int8wo", "int8dq", "float8wo", "int4wo-32")},
}
LAYER = {"model_name": "ln_linear_gelu", "data_type": "fp32", "direction": "forward_backward"}
PARAMETERS = {"model_name": "bert-tiny", "data_type": "bf16", "batch_size": 4, "seq_len": 32}


def _with_bert(script, recipes, recipes_environment, parameters=PARAMETERS):
    run_script(
        script,
        [json.dumps(recipes), json.dumps(parameters)],
        recipes_environment,
        framework="pt with recipes",
    )


def test_they_take_effect_and_keep_their_signal(recipes_environment):
    _with_bert(APPLIED, WORKING, recipes_environment)


def test_what_cannot_be_applied_here_gives_the_reason(recipes_environment):
    _with_bert(REFUSING, REFUSED, recipes_environment)


def test_recipes_that_train_have_all_gradients_and_others_have_not(recipes_environment):
    layer = LAYER | {"m": 64, "k": 128, "n": 96}
    _with_bert(TRAINING, TRAINED, recipes_environment, layer)


@pytest.fixture(scope="module")
def results(request, tmp_path_factory, recipes_environment):
    """Results of tiny BERT in bf16, by the compiler with its recipe."""
    measured = selected(request, test_a_model_is_measured_with_a_recipe, "name")
    names = (*measured, *RACED[2:])
    run = run_cbs(
        *("-name", "models/BERT_TINY_BF16_PT_32XI32_BATCH4/.+_DEFAULT", "-w", "0", "-iter", "1"),
        *("--backend", ",".join(f"pt_inductor:{name}" for name in names)),
        directory=tmp_path_factory.mktemp("recipes"),
        environment=recipes_environment,
    )
    return {record["definition"]["compiler"]: record for record in run.document["benchmarks"]}


@pytest.mark.parametrize(
    "name", ["eager+int8wo", pytest.param("inductor+int8dq", marks=pytest.mark.nightly)]
)
def test_a_model_is_measured_with_a_recipe(results, name):
    result = results[name]
    assert result["status"] == "ok", result["reason"]
    assert result["definition"]["precision"] == name.partition("+")[2]
    applied = result["metrics"]["framework_level"]["program"]["notes"]["recipe"]
    assert applied["layers"] == applied["linear"] > 10
    assert result["versions"]["torchao"]


def test_what_cannot_run_or_has_lost_the_model_is_no_number(results):
    refused, lossy = results["eager+block-64"], results["eager+intx-1-32"]
    assert refused["status"] == "unsupported"
    assert REFUSED["block-64"] in refused["reason"]
    assert lossy["status"] == "wrong_output"
    assert "dB is below 3 dB" in lossy["reason"]


UNAPPLIED = """
import torch
from unittest import mock
from comparative_benchmark.backends import recipes
from comparative_benchmark.backends.api import UnsupportedError
from comparative_benchmark.pt_inductor import quantization

def refused(model, error):
    try:
        quantization.apply_recipe(model, recipes.parse("int8wo"))
    except error as raised:
        return str(raised)
    raise AssertionError("applied")

assert "the model has none" in refused(torch.nn.Conv2d(3, 3, 1), UnsupportedError)
with mock.patch("torchao.quantization.quantize_"):
    told = refused(torch.nn.Linear(64, 64), quantization.NotAppliedError)
assert told == (
    "int8wo changed 0 of 1 linear layers: their weights are Parameter, not Int8Tensor"
)

# A recipe may return the class instead of its name.
from torchao.quantization import Int8Tensor, Int8WeightOnlyConfig

made = lambda: (Int8WeightOnlyConfig(set_inductor_config=False), Int8Tensor)
recipe = recipes.Recipe(
    name="mine", description="", min_sqnr_db=30.0, by_backend={"pt_inductor": made}
)
mine = recipes.Chosen(label="mine", recipe=recipe, values={})
applied = quantization.apply_recipe(torch.nn.Linear(64, 64), mine)
assert (applied["layers"], applied["weight_class"]) == (1, "Int8Tensor")
"""


def test_a_recipe_that_changes_nothing_is_an_error(recipes_environment):
    run_script(UNAPPLIED, [], recipes_environment, framework="pt with recipes")


ABSENT = """
import sys
import torch
from unittest import mock
from comparative_benchmark.backends import recipes
from comparative_benchmark.backends.api import UnsupportedError
from comparative_benchmark.pt_inductor import quantization

with mock.patch.dict(sys.modules, {"torchao": None, "torchao.quantization": None}):
    try:
        quantization.apply_recipe(torch.nn.Linear(64, 64), recipes.parse("int8wo"))
    except UnsupportedError as error:
        assert "pip install -e '.[recipes]'" in str(error)
    else:
        raise AssertionError("applied")
"""


def test_only_the_conv1d_of_transformers_is_taken_for_a_linear_layer():
    torch = pytest.importorskip("torch")
    from comparative_benchmark.pt_inductor import quantization

    class Conv1D(torch.nn.Module):
        def __init__(self, *shape):
            super().__init__()
            self.weight, self.bias = torch.nn.Parameter(torch.ones(shape)), None

    theirs = type("Conv1D", (Conv1D,), {"__module__": "transformers.pytorch_utils"})
    layers = {"own": Conv1D(4, 2), "theirs": theirs(4, 2), "other": theirs(4, 2, 3)}
    root = torch.nn.ModuleDict(layers)
    quantization._as_linear(root)
    assert [name for name in layers if root[name] is layers[name]] == ["own", "other"]
    assert root["theirs"].weight.shape == (2, 4)


def test_without_torchao_it_says_what_to_install(recipes_environment):
    run_script(ABSENT, [], recipes_environment, framework="pt with recipes")
