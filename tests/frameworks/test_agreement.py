"""The implementations of one architecture are one model: their float64 runs agree."""

import json

import numpy as np
import pytest
from framework_process import run_script

from openxla.benchmark.artifacts import arrays

SCRIPT = """
import importlib, json, sys
from pathlib import Path
from comparative_benchmark.backends.api import load_object
from openxla.benchmark.artifacts import arrays
module, reference, target, parameters = sys.argv[1:]
model = importlib.import_module(module).create_model(**json.loads(parameters))
inputs = model.preprocess(model.generate_default_inputs())
truth, same_type = load_object(reference)(model, inputs)
for stem, values in (("input", inputs), ("truth", truth), ("reference", same_type)):
    arrays.save_all(Path(target), stem, values)
"""
REFERENCES = {
    "pt": "comparative_benchmark.pt_inductor.reference:compute",
    "jax": "comparative_benchmark.jax_xla.reference:compute",
}
CASES = {
    "bert-tiny-fp32": ("bert", {"model_name": "bert-tiny", "seq_len": 32, "batch_size": 4}),
    "bert-tiny-bf16": ("bert", {"model_name": "bert-tiny", "seq_len": 32, "data_type": "bf16"}),
    "bert-base-fp32": ("bert", {"model_name": "bert-base-uncased", "seq_len": 32}),
    "resnet-tiny-fp32": ("resnet", {"model_name": "resnet-tiny", "batch_size": 4}),
    "resnet-tiny-fp16": ("resnet", {"model_name": "resnet-tiny", "data_type": "fp16"}),
    "resnet-50-fp32": ("resnet", {"model_name": "microsoft/resnet-50"}),
}


def _relative(values, truth):
    scale = np.sqrt(np.mean(np.square(truth)))
    return float(np.abs(values.astype(np.float64) - truth).max() / scale)


@pytest.fixture(scope="module", params=CASES)
def outputs(request, tmp_path_factory, environment):
    """Folders with inputs, truth and reference of each framework."""
    name, parameters = CASES[request.param]
    directories = {}
    for framework, reference in REFERENCES.items():
        directories[framework] = tmp_path_factory.mktemp(f"{request.param}-{framework}")
        module = f"openxla.benchmark.models.{framework}.{name}.{name}_model"
        arguments = [module, reference, str(directories[framework]), json.dumps(parameters)]
        run_script(SCRIPT, arguments, environment, framework=framework)
    return directories


def _load(outputs, stem):
    return [arrays.load_all(directory, stem)[0] for directory in outputs.values()]


def test_float64_runs_agree_to_1e_9_of_the_scale(outputs):
    pt, jax = _load(outputs, "truth")
    assert pt.dtype == jax.dtype == np.float64
    assert _relative(pt, jax) < 1e-9


def test_inputs_are_the_same_bytes(outputs):
    pt, jax = _load(outputs, "input")
    assert (pt.dtype, pt.tobytes()) == (jax.dtype, jax.tobytes())


def test_outputs_carry_signal(outputs):
    [truth, _] = _load(outputs, "truth")
    assert 0.1 < truth.std() < 10
    if truth.shape[0] > 1:
        assert np.abs(truth[0] - truth[1]).max() > 0.01 * truth.std()


def test_references_are_in_the_models_own_type_and_near_the_truth(outputs):
    truths, references = _load(outputs, "truth"), _load(outputs, "reference")
    assert references[0].dtype == references[1].dtype
    limit = {"float32": 1e-4, "float16": 2e-2, "bfloat16": 2e-1}[references[0].dtype.name]
    for truth, reference in zip(truths, references, strict=True):
        assert 0 < _relative(reference, truth) < limit
