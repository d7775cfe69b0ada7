"""Pipelines are one model in PyTorch and JAX; the steps of diffusion are diffusers' own."""

import json

import numpy as np
import pytest
from agreement_support import load, need, relative
from framework_process import run_script

from comparative_benchmark.judge import verification

pytestmark = pytest.mark.frameworks

TINY = {"model_name": "sd-pipeline-tiny", "seq_len": 16, "batch_size": 2}
DIFFUSION = {
    "fp32": ("sd_pipeline", TINY),
    "bf16": ("sd_pipeline", {**TINY, "data_type": "bf16"}),
}
GPT2 = ("gpt2_pipeline", {"model_name": "gpt2-tiny", "batch_size": 2, "max_new_tokens": 5})

PT = """
import importlib, json, sys
from pathlib import Path
from comparative_benchmark.pt_inductor.reference import compute
from openxla.benchmark.artifacts import arrays
module, target, parameters = sys.argv[1:]
model = importlib.import_module(module).create_model(**json.loads(parameters))
inputs = model.preprocess(model.generate_default_inputs())
truth, reference = compute(model, inputs)
for stem, values in (("input", inputs), ("truth", truth), ("reference", reference)):
    arrays.save_all(Path(target), stem, values)
"""

# Not op by op: JAX compiles each operation, which takes minutes for a pipeline.
JAX = """
import importlib, json, sys
from pathlib import Path
import jax, jax.numpy as jnp
import numpy as np
from openxla.benchmark.artifacts import arrays
from openxla.benchmark.models.shared_model import as_tuple
module, target, parameters = sys.argv[1:]
model = importlib.import_module(module).create_model(**json.loads(parameters))
inputs = model.preprocess(model.generate_default_inputs())
def widened(leaf):
    return jnp.asarray(leaf, jnp.float64) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf
def run(params, inputs):
    return [np.asarray(value) for value in as_tuple(jax.jit(model.apply)(params, *inputs))]
found = {"input": inputs, "compiled": run(model.params, inputs)}
if "data_type" not in parameters:  # in other types, the truth is the same program
    with jax.enable_x64(True):
        found["truth"] = run(*jax.tree.map(widened, (model.params, tuple(inputs))))
for stem, values in found.items():
    arrays.save_all(Path(target), stem, values)
"""

# Our steps against `DDIMScheduler`: its table to what float32 holds; and with our table in its
# place, each step, and the whole loop of `StableDiffusionPipeline`, in float64.
SCHEDULER = """
import diffusers, torch
from openxla.benchmark.models.architectures import sd_pipeline
from openxla.benchmark.models.pt.sd_pipeline import sd_pipeline_model

model = sd_pipeline_model.create_model(model_name="sd-pipeline-tiny", seq_len=16)
ids, negative, latents = map(torch.from_numpy, model.preprocess(model.generate_default_inputs()))
model.double()
latents = latents.double()
for name in ("sd-pipeline-tiny", "runwayml/stable-diffusion-v1-5"):
    config = sd_pipeline.ARCHITECTURE.config(name)
    steps = sd_pipeline.steps(config)
    scheduler = diffusers.DDIMScheduler.from_config(config["scheduler"])
    scheduler.set_timesteps(config["num_inference_steps"])
    assert scheduler.timesteps.tolist() == [step.timestep for step in steps]
    theirs = scheduler.alphas_cumprod.double()
    betas = torch.tensor(list(sd_pipeline._betas(config["scheduler"])), dtype=torch.float64)
    ours = torch.cumprod(1 - betas, 0)
    assert (theirs / ours - 1).abs().max() < 1e-4
    scheduler.alphas_cumprod, scheduler.final_alpha_cumprod = ours, ours[0]
    noise = torch.randn(latents.shape, dtype=torch.float64)
    for step in steps:
        due = scheduler.step(noise, step.timestep, latents).prev_sample
        got = step.keep * latents + step.add * noise
        assert (due - got).abs().max() < 1e-12 * due.abs().max(), step

config = sd_pipeline.ARCHITECTURE.config("sd-pipeline-tiny")
scheduler = diffusers.DDIMScheduler.from_config(config["scheduler"])
scheduler.alphas_cumprod, scheduler.final_alpha_cumprod = ours, ours[0]
scheduler.set_timesteps(config["num_inference_steps"])
with torch.no_grad():
    text = torch.cat([model.encode(negative), model.encode(ids)])
    x = latents
    for timestep in scheduler.timesteps:
        avoided, wanted = model.unet(
            torch.cat([x, x]), timestep.double(), encoder_hidden_states=text, return_dict=False
        )[0].chunk(2)
        guided = avoided + config["guidance_scale"] * (wanted - avoided)
        x = scheduler.step(guided, timestep, x).prev_sample
    due = model.vae.decode(x / config["scaling_factor"], return_dict=False)[0]
    got = model(ids, negative, latents)
error = (due - got).abs().max() / due.square().mean().sqrt()
assert error < 1e-9, error
assert (x / latents - 1).abs().mean() > 0.1  # the loop did something
"""

# What a pipeline takes into account: each of its inputs.
SENSITIVE = """
import torch
from openxla.benchmark.models.pt.sd_pipeline import sd_pipeline_model

model = sd_pipeline_model.create_model(model_name="sd-pipeline-tiny", seq_len=16)
ids, negative, latents = map(torch.from_numpy, model.preprocess(model.generate_default_inputs()))
with torch.no_grad():
    plain = model(ids, negative, latents)
    scale = plain.std()
    for changed in (((ids + 1) % 1024, negative, latents),
                    (ids, (negative + 5) % 1024, latents), (ids, negative, latents.flip(2))):
        assert (model(*changed) - plain).abs().max() > 0.01 * scale
"""


def run_in_each(case, tmp_path_factory, environment):
    """Returns folders with what `PT` and `JAX` save."""
    name, parameters = case
    folders = {}
    for framework, script in (("pt", PT), ("jax", JAX)):
        folders[framework] = tmp_path_factory.mktemp(f"{name}-{framework}")
        module = f"openxla.benchmark.models.{framework}.{name}.{name}_model"
        arguments = [module, str(folders[framework]), json.dumps(parameters)]
        run_script(script, arguments, environment, framework=framework)
    return folders


@pytest.fixture(scope="module", params=DIFFUSION)
def diffusion(request, tmp_path_factory, environment):
    """Folders of each framework, see `run_in_each`."""
    need("diffusers")
    return run_in_each(DIFFUSION[request.param], tmp_path_factory, environment)


@pytest.mark.parametrize("diffusion", ["fp32"], indirect=True)
def test_float64_runs_agree_to_1e_9_of_the_scale(diffusion):
    truths = load(diffusion, "truth")
    [pt], [jax] = truths["pt"], truths["jax"]
    assert pt.dtype == jax.dtype == np.float64
    assert relative(pt, jax) < 1e-9


def test_inputs_are_the_same_bytes(diffusion):
    inputs = load(diffusion, "input")
    assert len(inputs["pt"]) == len(inputs["jax"]) == 3
    for pt, jax in zip(inputs["pt"], inputs["jax"], strict=True):
        assert (pt.dtype, pt.shape, pt.tobytes()) == (jax.dtype, jax.shape, jax.tobytes())


def test_pictures_carry_signal_of_each_row(diffusion):
    [truth] = load(diffusion, "truth")["pt"]
    assert 0.1 < truth.std() < 10
    assert np.abs(truth[0] - truth[1]).max() > 0.1 * truth.std()


def test_the_program_of_jax_passes_the_verification_of_pytorch(diffusion):
    [compiled] = diffusion["jax"].glob("compiled_*.npy")
    truth, reference = (list(diffusion["pt"].glob(f"{x}_*.npy")) for x in ("truth", "reference"))
    verdict = verification.verify([compiled], truth, reference)
    assert verdict.passed, verdict
    assert verdict.relative_rmse > 0


def test_steps_are_those_of_diffusers(environment):
    need("diffusers")
    run_script(SCHEDULER, [], environment, framework="pt")


def test_a_picture_depends_on_each_input(environment):
    need("diffusers")
    run_script(SENSITIVE, [], environment, framework="pt")


def test_gpt2_pipelines_continue_with_the_same_tokens(tmp_path_factory, environment):
    truths = load(run_in_each(GPT2, tmp_path_factory, environment), "truth")
    (pt_tokens, pt_logits), (jax_tokens, jax_logits) = truths["pt"], truths["jax"]
    assert pt_tokens.shape == (2, 5)
    np.testing.assert_array_equal(pt_tokens, jax_tokens)
    assert relative(pt_logits, jax_logits) < 1e-9
