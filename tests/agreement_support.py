"""Runs one architecture in each framework, and gives the folders with what came out."""

import importlib.util
import json

import numpy as np
import pytest
from framework_process import run_script

from openxla.benchmark.artifacts import arrays

# The compiled run is the candidate that verification by the other framework's truth has to accept.
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
if ".jax." in module:
    import jax
    compiled = [jax.jit(model.apply)(model.params, *inputs)]
for stem, values in (
    ("input", inputs), ("truth", truth), ("reference", same_type), ("compiled", compiled)
):
    arrays.save_all(Path(target), stem, values)
"""
REFERENCES = {
    "pt": "comparative_benchmark.pt_inductor.reference:compute",
    "jax": "comparative_benchmark.jax_xla.reference:compute",
}


def run_all(name, parameters, tmp_path_factory, environment):
    """Returns folders with inputs, truth, reference and compiled run, by framework."""
    directories = {}
    for framework, reference in REFERENCES.items():
        directories[framework] = tmp_path_factory.mktemp(f"{name}-{framework}")
        module = f"openxla.benchmark.models.{framework}.{name}.{name}_model"
        arguments = [module, reference, str(directories[framework]), json.dumps(parameters)]
        run_script(SCRIPT, arguments, environment, framework=framework)
    return directories


def load(directories, stem):
    """Returns the arrays of that stem, by framework."""
    return {name: arrays.load_all(directory, stem) for name, directory in directories.items()}


def relative(values, truth):
    """Returns the largest error, relative to the root mean square of the truth."""
    scale = np.sqrt(np.mean(np.square(truth)))
    return float(np.abs(values.astype(np.float64) - truth).max() / scale)


def need(package):
    """Skips the test where a package is not installed; does not import it."""
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
