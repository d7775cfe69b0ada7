"""Language, speech and diffusion models in TensorFlow are those in PyTorch, token by token."""

import json

import numpy as np
import pytest
from agreement_support import need, relative
from framework_process import run_script

from comparative_benchmark.judge.verification import verify
from openxla.benchmark.artifacts import arrays
from openxla.benchmark.models import architectures
from openxla.benchmark.models.preprocessing import element_type_of

pytestmark = pytest.mark.frameworks

NEW = 4
SHORT = {"batch_size": 2, "seq_len": 16}
GREEDY = {**SHORT, "max_new_tokens": NEW}
# Compiling takes most of the time. What generates holds what scores, and the diffusion pipeline its
# three networks, so XLA compiles the former; the rest runs as TensorFlow's graphs.
XLA, GRAPH = ["xla"], ["graph"]
CASES = {
    "gpt2": (GRAPH, "gpt2", {"model_name": "gpt2-tiny", **SHORT}),
    "gpt2-greedy": (XLA, "gpt2", {"model_name": "gpt2-tiny", **GREEDY}),
    "gpt2-greedy-bf16": (
        XLA,
        "gpt2",
        {"model_name": "gpt2-tiny", **GREEDY, "data_type": "bf16"},
    ),
    "llama": (GRAPH, "llama", {"model_name": "llama-tiny", **SHORT}),
    "llama-greedy": (XLA, "llama", {"model_name": "llama-tiny", **GREEDY}),
    "gemma": (GRAPH, "gemma", {"model_name": "gemma-tiny", **SHORT}),
    "gemma-greedy": (GRAPH, "gemma", {"model_name": "gemma-tiny", **GREEDY}),
    "t5": (GRAPH, "t5", {"model_name": "t5-tiny", **SHORT}),
    "t5-greedy": (GRAPH, "t5_for_cond_gen", {"model_name": "t5-tiny", **GREEDY}),
    "t5-greedy-fp16": (
        XLA,
        "t5_for_cond_gen",
        {"model_name": "t5-tiny", **GREEDY, "data_type": "fp16"},
    ),
    "whisper": (XLA, "whisper", {"model_name": "whisper-tiny-test", **SHORT}),
    "clip": (GRAPH, "sd_clip", {"model_name": "sd-clip-tiny", **SHORT}),
    "unet-bf16": (
        GRAPH,
        "sd_unet",
        {"model_name": "sd-unet-tiny", "batch_size": 2, "data_type": "bf16"},
    ),
    "unet": (GRAPH, "sd_unet", {"model_name": "sd-unet-tiny", "batch_size": 2}),
    "vae": (GRAPH, "sd_vae", {"model_name": "sd-vae-tiny", "batch_size": 2}),
    "vae-fp16": (
        GRAPH,
        "sd_vae",
        {"model_name": "sd-vae-tiny", "batch_size": 2, "data_type": "fp16"},
    ),
    "gpt2-pipeline": (
        GRAPH,
        "gpt2_pipeline",
        {"model_name": "gpt2-tiny", "batch_size": 2, "max_new_tokens": NEW},
    ),
    "diffusion-pipeline": (XLA, "sd_pipeline", {"model_name": "sd-pipeline-tiny", **SHORT}),
}
GENERATING = [case for case, (*_, parameters) in CASES.items() if "max_new_tokens" in parameters]

# The judge: truth and reference. A model that generates is judged along the truth's own tokens.
PT = """
import importlib, json, sys
from pathlib import Path
from comparative_benchmark.pt_inductor.reference import compute
from openxla.benchmark.artifacts import arrays
module, target, parameters = sys.argv[1:]
model = importlib.import_module(module).create_model(**json.loads(parameters))
inputs = model.preprocess(model.generate_default_inputs())
truth, reference = compute(model, inputs)
if hasattr(model, "prefill"):
    _, reference = compute(model, model.verification_inputs(inputs, truth))
for stem, values in (("input", inputs), ("truth", truth), ("reference", reference)):
    arrays.save_all(Path(target), stem, values)
"""

# A model that generates runs along the truth's tokens (`forced`) and along others (`other`), too,
# and step by step through `prefill` and `decode` (`steps`).
TF = """
import importlib, json, sys
from pathlib import Path
import numpy as np
import tensorflow as tf
from comparative_benchmark.tf_xla.reference import compute
from openxla.benchmark.artifacts import arrays
from openxla.benchmark.models.shared_model import as_tuple
module, target, parameters, programs = sys.argv[1:]
model = importlib.import_module(module).create_model(**json.loads(parameters))
inputs = model.preprocess(model.generate_default_inputs())
def run(function, values):
    tensors = [tf.convert_to_tensor(value) for value in values]
    return [value.numpy() for value in as_tuple(function(*tensors))]
truth, reference = compute(model, inputs)
found, judged = {"input": inputs, "truth": truth}, inputs
if hasattr(model, "prefill"):
    judged = model.verification_inputs(inputs, truth)
    found["forced"], reference = compute(model, judged)
    found["other"] = run(model.forward, (*inputs, (truth[0] + 1) % 1024))
    tensors = [tf.convert_to_tensor(value) for value in inputs]
    first, cache = model.prefill(*tensors)
    position = tf.constant(model.first_position(*tensors), tf.int32)
    second, cache = model.decode(tf.constant(truth[0][:, 0]), position, cache)
    third, _ = model.decode(tf.constant(truth[0][:, 1]), position + 1, cache)
    found["steps"] = [value.numpy() for value in (first, second, third)]
found["reference"] = reference
for program in json.loads(programs):
    function = tf.function(model.forward, jit_compile=True if program == "xla" else None)
    found[program] = run(function, judged)
for stem, values in found.items():
    arrays.save_all(Path(target), stem, values)
"""


def module_of(framework, name):
    return f"openxla.benchmark.models.{framework}.{name}.{name}_model"


class Outputs:
    """What both frameworks computed of one case."""

    def __init__(self, programs, name, parameters, folders):
        self.programs = programs
        self.name = name
        self.parameters = parameters
        self.folders = folders
        self.generates = "max_new_tokens" in parameters

    def load(self, stem, framework="tf"):
        return arrays.load_all(self.folders[framework], stem)

    def files(self, stem, framework):
        found = sorted(self.folders[framework].glob(f"{stem}_*.npy"))
        # Of generation, logits are judged: tokens are no numbers that could be near.
        return found[1:] if self.generates else found


@pytest.fixture(scope="module", params=CASES)
def outputs(request, tmp_path_factory, environment):
    """What PyTorch and TensorFlow computed, see `PT` and `TF`."""
    need("tensorflow")
    programs, name, parameters = CASES[request.param]
    if name.startswith("sd_"):
        need("diffusers")
    folders = {}
    for framework, script, further in (("pt", PT, []), ("tf", TF, [json.dumps(programs)])):
        folders[framework] = tmp_path_factory.mktemp(f"{request.param}-{framework}")
        arguments = [module_of(framework, name), str(folders[framework]), json.dumps(parameters)]
        run_script(script, [*arguments, *further], environment, framework=framework)
    return Outputs(programs, name, parameters, folders)


def test_float64_runs_agree_to_1e_9_of_the_scale(outputs):
    tf, pt = outputs.load("truth"), outputs.load("truth", "pt")
    assert len(tf) == len(pt) == (2 if outputs.generates else 1)
    assert tf[-1].dtype == pt[-1].dtype == np.float64
    assert relative(tf[-1], pt[-1]) < 1e-9
    if outputs.generates:
        assert tf[0].dtype == pt[0].dtype == np.int32
        np.testing.assert_array_equal(tf[0], pt[0])


def test_inputs_are_the_same_bytes(outputs):
    tf, pt = outputs.load("input"), outputs.load("input", "pt")
    assert [(x.dtype, x.shape, x.tobytes()) for x in tf] == [
        (x.dtype, x.shape, x.tobytes()) for x in pt
    ]


def test_outputs_are_those_that_the_architecture_declares(outputs):
    given = {"data_type": "fp32", **outputs.parameters}
    due = [(spec.dtype, spec.shape) for spec in architectures.get(outputs.name).output_specs(given)]
    for stem in ("reference", *outputs.programs):
        assert [(element_type_of(x.dtype), x.shape) for x in outputs.load(stem)] == due


def test_runs_in_the_models_type_pass_verification_by_the_other_framework(outputs):
    truth, reference = (outputs.files(stem, "pt") for stem in ("truth", "reference"))
    for program in ("reference", *outputs.programs):
        verdict = verify(outputs.files(program, "tf"), truth, reference)
        assert verdict.passed, (program, verdict)
        assert verdict.relative_rmse > 0


@pytest.mark.parametrize("outputs", GENERATING, indirect=True)
def test_generation_follows_the_tokens_that_it_is_given(outputs):
    (tokens, logits), (kept, forced) = outputs.load("truth"), outputs.load("forced")
    np.testing.assert_array_equal(tokens, logits.argmax(axis=-1))
    np.testing.assert_array_equal(tokens, kept)
    assert relative(forced, logits) < 1e-12
    assert len(np.unique(tokens)) > 2
    other, reference = outputs.load("other")[1], outputs.load("reference")[1]
    difference = np.abs(other - reference).max(axis=(0, 2))
    assert difference[0] == 0
    assert (difference[1:] > 0.1 * reference.std()).all()


@pytest.mark.parametrize("outputs", GENERATING, indirect=True)
def test_prefill_and_decode_are_the_steps_of_generation(outputs):
    for index, logits in enumerate(outputs.load("steps")):
        np.testing.assert_array_equal(logits, outputs.load("reference")[1][:, index])
