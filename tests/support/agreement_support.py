"""Runs models in each framework and loads the arrays that they save."""

import importlib.util
import json

import numpy as np
import pytest
from framework_process import run_script

PACKAGES = {"pt": "torch", "jax": "jax", "tf": "tensorflow"}

# Each request names a model, its parameters, its programs and a folder. The script saves:
#   input      inputs of the model
#   truth      outputs of a float64 run
#   reference  outputs of a run in the model's own type, operation by operation
#   xla/graph  outputs of a compiled program in the model's own type
# A generating model runs freely once, in float64 (`free`). The runs above feed its tokens. The
# script then also saves:
#   other      outputs of the first program along other tokens
#   padded     outputs of the first program with other tokens in the padding, if there is a mask
#   steps      logits of `prefill` and two calls of `decode` (TensorFlow only)
#   whole      float64 logits of the scoring model, if `scoring`: all tokens at once, then the first
#              row with another first token, then with another last token
SCRIPT = """
import importlib, json, sys
from pathlib import Path
from unittest import mock
import numpy as np
from openxla.benchmark.artifacts import array_files
from openxla.benchmark.models import trained
from openxla.benchmark.models.shared_model import as_tuple

framework, requests = sys.argv[1], json.loads(sys.argv[2])
backend = {"pt": "pt_inductor", "jax": "jax_xla", "tf": "tf_xla"}[framework]
reference = importlib.import_module(f"comparative_benchmark.{backend}.reference")

def compute_truth(model, inputs):
    # Skips the reference: JAX compiles each of its operations.
    with mock.patch.object(reference, "in_own_type", lambda model, inputs: []):
        return reference.compute(model, inputs)[0]

def runner(model, program):
    if program == "reference":
        return lambda inputs: reference.in_own_type(model, inputs)
    if framework == "jax":
        import jax
        compiled = jax.jit(model.apply)
        function = lambda inputs: compiled(model.params, *inputs)
    else:
        import tensorflow as tf
        compiled = tf.function(model.forward, jit_compile=True if program == "xla" else None)
        function = lambda inputs: compiled(*map(tf.convert_to_tensor, inputs))
    return lambda inputs: [np.asarray(value) for value in as_tuple(function(inputs))]

def first_inputs(model, parameters):
    if parameters.get("checkpoint") != "trained":
        return model.preprocess(model.generate_default_inputs())
    task = trained.task_of(model.model_parameters)
    return next(task.batches(model.architecture, model.model_parameters))

def run_steps(model, inputs, tokens):
    import tensorflow as tf
    tensors = [tf.convert_to_tensor(value) for value in inputs]
    first, cache = model.prefill(*tensors)
    position = tf.constant(model.first_position(*tensors), tf.int32)
    second, cache = model.decode(tf.constant(tokens[:, 0]), position, cache)
    third, _ = model.decode(tf.constant(tokens[:, 1]), position + 1, cache)
    return [value.numpy() for value in (first, second, third)]

def run_generation_variants(model, run, inputs, tokens):
    # The second row feeds the same first token.
    other = (tokens + 1) % 1024
    other[1, 0] = tokens[1, 0]
    values = {"other": run((*inputs, other))}
    if len(inputs) == 2:
        ids, mask = inputs
        padded = np.where(mask > 0, ids, 7).astype(ids.dtype)
        values["padded"] = run((padded, mask, tokens))
    if framework == "tf":
        values["steps"] = run_steps(model, inputs, tokens)
    return values

def run_scoring_model(create_model, parameters, inputs, tokens):
    scoring = {key: value for key, value in parameters.items() if key != "max_new_tokens"}
    whole = np.concatenate([inputs[0], tokens[:, :-1]], axis=1)
    changed = np.repeat(whole[:1], 2, axis=0)
    changed[[0, 1], [0, -1]] = (changed[[0, 1], [0, -1]] + 1) % 1024
    return compute_truth(create_model(**scoring), [np.concatenate([whole, changed])])

for request in requests:
    parameters, programs = request["parameters"], request["programs"]
    create_model = importlib.import_module(request["module"]).create_model
    model = create_model(**parameters)
    inputs = first_inputs(model, parameters)
    values, fed = {"input": inputs}, inputs
    generates = "max_new_tokens" in parameters
    if generates:
        values["free"] = compute_truth(model, inputs)
        fed = model.verification_inputs(inputs, values["free"])
    runners = {program: runner(model, program) for program in programs}
    if "reference" in programs:
        values["truth"], values["reference"] = reference.compute(model, fed)
    else:
        values["truth"] = compute_truth(model, fed)
    for program in set(programs) - {"reference"}:
        values[program] = runners[program](fed)
    if generates:
        tokens = values["free"][0]
        values |= run_generation_variants(model, runners[programs[0]], inputs, tokens)
        if request["scoring"]:
            values["whole"] = run_scoring_model(create_model, parameters, inputs, tokens)
    for stem, arrays_of_stem in values.items():
        array_files.save_all(Path(request["folder"]), stem, arrays_of_stem)
"""


def model_request(module, parameters, folder, *, programs=(), scoring=False):
    """Returns one request for `run_models`; see `SCRIPT`."""
    return {
        "module": module,
        "parameters": dict(parameters),
        "folder": str(folder),
        "programs": list(programs),
        "scoring": scoring,
    }


def run_models(framework, requests, environment):
    """Runs models in the process of a framework and saves their arrays."""
    run_script(SCRIPT, [framework, json.dumps(requests)], environment, framework=framework)


def module_name(framework, architecture):
    """Returns the module that implements an architecture in a framework."""
    return f"openxla.benchmark.models.{framework}.{architecture}.{architecture}_model"


def relative(values, truth):
    """Returns the largest error, relative to the root mean square of the truth."""
    scale = np.sqrt(np.mean(np.square(truth)))
    return float(np.abs(values.astype(np.float64) - truth).max() / scale)


def is_installed(package):
    """Returns whether a package is installed; does not import it."""
    return importlib.util.find_spec(package) is not None


def need(package):
    """Skips the test if a package is not installed; does not import it."""
    if not is_installed(package):
        pytest.skip(f"{package} is not installed")
