"""Our formulas agree with transformers' and diffusers'; Keras runs on TensorFlow only."""

import json
import subprocess
import sys

import numpy as np
import pytest
from agreement_support import need
from framework_process import run_script

from openxla.benchmark.models.architectures.t5 import relative_buckets

pytestmark = pytest.mark.frameworks

BUCKETS = """
import json, sys
from pathlib import Path
import torch
from transformers.models.t5.modeling_t5 import T5Attention
distances = torch.arange(-600, 601)
buckets = []
for count, longest, bidirectional in json.loads(sys.argv[1]):
    bucket = T5Attention._relative_position_bucket(distances, bidirectional, count, longest)
    buckets.append(bucket.tolist())
Path(sys.argv[2]).write_text(json.dumps(buckets))
"""
BUCKET_OPTIONS = [
    (count, longest, bidirectional)
    for count, longest in ((32, 128), (16, 32))
    for bidirectional in (False, True)
]

# Compares our steps with `DDIMScheduler`. Its float32 table is near ours. With our table, each of
# its steps equals ours in float64, and so does the whole loop of `StableDiffusionPipeline`.
SCHEDULER = """
import diffusers, torch
from openxla.benchmark.models.architectures import sd_pipeline
from openxla.benchmark.models.pt import sd_pipeline as sd_pipeline_model

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
        expected = scheduler.step(noise, step.timestep, latents).prev_sample
        actual = step.keep * latents + step.add * noise
        assert (expected - actual).abs().max() < 1e-12 * expected.abs().max(), step

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
    expected = model.vae.decode(x / config["scaling_factor"], return_dict=False)[0]
    actual = model(ids, negative, latents)
error = (expected - actual).abs().max() / expected.square().mean().sqrt()
assert error < 1e-9, error
assert (x / latents - 1).abs().mean() > 0.1  # the loop changes the latents
"""
PICTURE_INPUTS = """
import torch
from openxla.benchmark.models.pt import sd_pipeline as sd_pipeline_model

model = sd_pipeline_model.create_model(model_name="sd-pipeline-tiny", seq_len=16)
ids, negative, latents = map(torch.from_numpy, model.preprocess(model.generate_default_inputs()))
with torch.no_grad():
    picture = model(ids, negative, latents)
    for changed in (((ids + 1) % 1024, negative, latents),
                    (ids, (negative + 5) % 1024, latents), (ids, negative, latents.flip(2))):
        assert (model(*changed) - picture).abs().max() > 0.01 * picture.std()
"""


@pytest.fixture(scope="module")
def transformers_buckets(tmp_path_factory, environment):
    """Returns the buckets of transformers, by their options."""
    target = tmp_path_factory.mktemp("buckets") / "buckets.json"
    arguments = [json.dumps(BUCKET_OPTIONS), str(target)]
    run_script(BUCKETS, arguments, environment, framework="pt")
    return dict(zip(BUCKET_OPTIONS, json.loads(target.read_text()), strict=True))


@pytest.mark.parametrize(("count", "longest", "bidirectional"), BUCKET_OPTIONS)
def test_distances_have_the_buckets_of_transformers(
    transformers_buckets, count, longest, bidirectional
):
    ours = relative_buckets(
        np.arange(-600, 601), count=count, longest=longest, bidirectional=bidirectional
    )
    assert ours.tolist() == transformers_buckets[count, longest, bidirectional]


def test_diffusion_steps_are_those_of_diffusers(environment):
    need("diffusers")
    run_script(SCHEDULER, [], environment, framework="pt")


def test_a_picture_depends_on_each_input(environment):
    need("diffusers")
    run_script(PICTURE_INPUTS, [], environment, framework="pt")


def test_keras_models_do_not_cast_inputs(environment):
    need("tensorflow")
    script = """
import numpy as np
from openxla.benchmark.models.tf.resnet import create_model
create_model(model_name="resnet-tiny", data_type="bf16").forward(np.ones((1, 3, 32, 32), "f4"))
"""
    with pytest.raises(RuntimeError, match="bfloat16"):
        run_script(script, [], environment, framework="tf")


def test_other_backends_of_keras_are_refused_with_the_fix(environment):
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
