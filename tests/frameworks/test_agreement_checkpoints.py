"""Checkpoints of users and trained checkpoints give the same model in all frameworks."""

import numpy as np
import pytest
from agreement_support import PACKAGES, model_request, module_name, need, relative, run_models
from framework_process import run_script

from openxla.benchmark.artifacts import array_files
from openxla.benchmark.user_models import ModelOptions, find_cases

pytestmark = pytest.mark.frameworks

# Writes directories with `save_pretrained`. The suite has no models of these sizes.
SAVE_PRETRAINED = """
import sys, transformers as t
configs = {
    "bert": (t.BertModel, t.BertConfig(
        vocab_size=300, hidden_size=48, num_hidden_layers=3, num_attention_heads=4,
        intermediate_size=80, max_position_embeddings=64)),
    "gpt2": (t.GPT2LMHeadModel, t.GPT2Config(
        vocab_size=310, n_embd=40, n_layer=3, n_head=5, n_positions=48)),
    "llama": (t.LlamaForCausalLM, t.LlamaConfig(
        vocab_size=320, hidden_size=48, num_hidden_layers=3, num_attention_heads=6,
        num_key_value_heads=2, intermediate_size=72, max_position_embeddings=64)),
    "vit": (t.ViTForImageClassification, t.ViTConfig(
        image_size=48, patch_size=12, hidden_size=40, num_hidden_layers=3, num_attention_heads=4,
        intermediate_size=56, num_labels=7)),
    "t5": (t.T5Model, t.T5Config(
        vocab_size=330, d_model=40, d_kv=12, d_ff=72, num_layers=3, num_heads=3,
        decoder_start_token_id=0)),
}
for name, (kind, config) in configs.items():
    t.set_seed(0)
    kind(config).save_pretrained(f"{sys.argv[1]}/{name}")
"""
DIRECTORIES = ("bert", "gpt2", "llama", "vit", "t5")
TRAINED = {
    "bert": {"model_name": "bert-tiny", "seq_len": 32},
    "gpt2": {"model_name": "gpt2-tiny", "seq_len": 32},
    "resnet": {"model_name": "resnet-tiny"},
}

# Changes the weights of a checkpoint or their names, and creates the model in TensorFlow.
CREATE_WITH_FAULT = """
import importlib, sys
from openxla.benchmark.models import architectures, checkpoints
name, model_name, tensor_name, change = sys.argv[1:]
module = importlib.import_module(f"openxla.benchmark.models.tf.{name}")
architecture = type(architectures.get(name))
tensors, load, names = architecture.tensors, checkpoints.load_tensors, architecture.module_names
def changed_tensors(self, config):
    for tensor in tensors(self, config):
        if tensor.name != tensor_name:
            yield tensor
        elif change == "transpose":
            yield tensor._replace(shape=tensor.shape[::-1])
def load_without(*arguments):
    loaded = load(*arguments)
    return {name: loaded[name] for name in loaded if name != tensor_name}
try:
    if change == "remove":
        checkpoints.load_tensors = load_without
    elif change == "rename":
        architecture.module_names = (*names, (r"class_token", "klass"))
    else:
        architecture.tensors = changed_tensors
        checkpoints.recipe_digest.cache_clear()
    module.create_model(model_name=model_name)
finally:
    # Other scripts in this process create the same architecture.
    architecture.tensors, checkpoints.load_tensors = tensors, load
    architecture.module_names = names
    checkpoints.recipe_digest.cache_clear()
"""


@pytest.fixture(scope="module")
def run_each(tmp_path_factory, environment):
    """Returns a function that computes the truths of several models in each framework.

    It takes a function from a framework to the modules and parameters of the models, by name. It
    returns a function that loads the arrays of a model, by framework.
    """

    def run(models_of):
        folder = tmp_path_factory.mktemp("truths")
        for framework, package in PACKAGES.items():
            need(package)
            requests = [
                model_request(module, parameters, folder / framework / name)
                for name, (module, parameters) in models_of(framework).items()
            ]
            run_models(framework, requests, environment)

        def load(name, stem):
            return {
                framework: array_files.load_all(folder / framework / name, stem)
                for framework in PACKAGES
            }

        return load

    return run


@pytest.fixture(scope="module")
def directories(run_each, tmp_path_factory, environment):
    """Returns a function that loads the arrays of a directory's model."""
    folder = tmp_path_factory.mktemp("directories")
    run_script(SAVE_PRETRAINED, [str(folder)], environment, framework="pt")

    def models_of(framework):
        models = {}
        for name in DIRECTORIES:
            seq_lens = () if name == "vit" else (16,)
            wanted = ModelOptions(framework=framework, batch_sizes=(2,), seq_lens=seq_lens)
            (case,) = find_cases(str(folder / name), wanted).cases
            models[name] = case.model.model_impl.module_path, case.model.model_parameters
        return models

    return run_each(models_of)


@pytest.fixture(scope="module")
def trained(run_each):
    """Returns a function that loads the arrays of a trained model."""

    def models_of(framework):
        return {
            name: (
                module_name(framework, name),
                {**parameters, "checkpoint": "trained", "batch_size": 4},
            )
            for name, parameters in TRAINED.items()
        }

    return run_each(models_of)


def _assert_agreement(load, name):
    inputs, truths = load(name, "input"), load(name, "truth")
    for other in ("jax", "tf"):
        for mine, theirs in zip(inputs["pt"], inputs[other], strict=True):
            assert (mine.dtype, mine.tobytes()) == (theirs.dtype, theirs.tobytes())
        for mine, theirs in zip(truths["pt"], truths[other], strict=True):
            assert mine.dtype == theirs.dtype == np.float64
            assert mine.shape == theirs.shape
            assert mine.std() > 0
            assert relative(theirs, mine) < 1e-9


@pytest.mark.parametrize("name", DIRECTORIES)
def test_float64_outputs_of_directories_agree(directories, name):
    _assert_agreement(directories, name)


@pytest.mark.parametrize("name", TRAINED)
def test_float64_outputs_of_trained_models_agree_on_the_first_examples(trained, name):
    _assert_agreement(trained, name)


@pytest.mark.parametrize(
    ("name", "model_name", "tensor", "change", "message"),
    [
        ("bert", "bert-tiny", "encoder.layer.1.output.dense.bias", "remove", "lacks"),
        (
            "bert",
            "bert-tiny",
            "encoder.layer.0.intermediate.dense.weight",
            "transpose",
            "shapes differ",
        ),
        (
            "efficientnet",
            "efficientnet-tiny",
            "efficientnet.encoder.top_bn.running_var",
            "remove",
            "lacks",
        ),
        ("vit", "vit-tiny", "vit.embeddings.cls_token", "forget", "variables without a tensor"),
        ("vit", "vit-tiny", "vit.embeddings.cls_token", "rename", "tensors without a variable"),
    ],
)
def test_weights_that_do_not_fit_are_named(name, model_name, tensor, change, message, environment):
    need("tensorflow")
    arguments = [name, model_name, tensor, change]
    with pytest.raises(RuntimeError) as caught:
        run_script(CREATE_WITH_FAULT, arguments, environment, framework="tf")
    last_line = str(caught.value).strip().splitlines()[-1]
    assert last_line.startswith("ValueError: the weights do not match")
    assert message in last_line
    assert ("class_token" if change == "forget" else tensor) in last_line
