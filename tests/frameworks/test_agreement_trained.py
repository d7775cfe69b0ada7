"""Trained weights make one model in all frameworks, on the examples of its task."""

import json

import numpy as np
import pytest
from agreement_support import need
from framework_process import run_script

from openxla.benchmark.artifacts import arrays

pytestmark = pytest.mark.frameworks

MODELS = {
    "bert": {"model_name": "bert-tiny", "seq_len": 32},
    "gpt2": {"model_name": "gpt2-tiny", "seq_len": 32},
    "resnet": {"model_name": "resnet-tiny"},
}
REFERENCES = {
    "pt": "comparative_benchmark.pt_inductor.reference:compute",
    "jax": "comparative_benchmark.jax_xla.reference:compute",
    "tf": "comparative_benchmark.tf_xla.reference:compute",
}
SCRIPT = """
import importlib, json, sys
from pathlib import Path
from comparative_benchmark.backends.api import load_object
from openxla.benchmark.artifacts import arrays
from openxla.benchmark.models import trained
module, reference, target, parameters = sys.argv[1:]
model = importlib.import_module(module).create_model(**json.loads(parameters))
task = trained.task_of(model.model_parameters)
first = next(task.batches(model.architecture, model.model_parameters))
truth, _ = load_object(reference)(model, first)
arrays.save_all(Path(target), "truth", truth)
"""


@pytest.mark.parametrize("name", MODELS)
def test_float64_runs_agree_on_the_first_examples(name, tmp_path, environment):
    need("tensorflow")
    truths = {}
    for framework, reference in REFERENCES.items():
        module = f"openxla.benchmark.models.{framework}.{name}.{name}_model"
        parameters = {**MODELS[name], "checkpoint": "trained", "batch_size": 4}
        arguments = [module, reference, str(tmp_path / framework), json.dumps(parameters)]
        run_script(SCRIPT, arguments, environment, framework=framework)
        [truths[framework]] = arrays.load_all(tmp_path / framework, "truth")
    scale = np.sqrt(np.mean(np.square(truths["pt"])))
    for framework in ("jax", "tf"):
        assert np.abs(truths[framework] - truths["pt"]).max() < 1e-9 * scale
