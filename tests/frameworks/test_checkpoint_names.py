"""Our checkpoints hold what the libraries' own models hold: the same names, the same shapes."""

import json
import subprocess
import sys

import pytest
from agreement_support import need

from openxla.benchmark.models import architectures

# On torch's meta device: shapes without memory, also for the real sizes.
SCRIPT = """
import importlib, json, sys
import torch
library, name, left_out = sys.argv[1:]
model_class = getattr(importlib.import_module(library), name)
config = json.load(sys.stdin)
with torch.device("meta"):
    if library == "diffusers":
        model = model_class.from_config(config)
    else:
        model = model_class(model_class.config_class(**config))
tied = getattr(model, "_tied_weights_keys", None) or {}
parts = tuple(json.loads(left_out))
print(json.dumps({
    key: list(value.shape) for key, value in model.state_dict().items()
    if key not in tied and not key.startswith(parts)
}))
"""
# The picture decoder is used without the encoder that diffusers' class also has.
ENCODER = ["encoder.", "quant_conv."]
MODELS = {
    ("sd_clip", "sd-clip-tiny"): ("transformers", "CLIPTextModel", []),
    ("sd_clip", "sd-clip"): ("transformers", "CLIPTextModel", []),
    ("sd_unet", "sd-unet-tiny"): ("diffusers", "UNet2DConditionModel", []),
    ("sd_unet", "sd-unet"): ("diffusers", "UNet2DConditionModel", []),
    ("sd_vae", "sd-vae-tiny"): ("diffusers", "AutoencoderKL", ENCODER),
    ("sd_vae", "sd-vae"): ("diffusers", "AutoencoderKL", ENCODER),
    ("whisper", "whisper-tiny-test"): ("transformers", "WhisperForConditionalGeneration", []),
    ("whisper", "openai/whisper-tiny"): ("transformers", "WhisperForConditionalGeneration", []),
    ("whisper", "openai/whisper-base"): ("transformers", "WhisperForConditionalGeneration", []),
}


@pytest.mark.parametrize(("name", "model_name"), MODELS)
def test_names_and_shapes_are_those_of_the_library(name, model_name):
    library, model_class, left_out = MODELS[name, model_name]
    need(library)
    architecture = architectures.get(name)
    config = architecture.config(model_name)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, library, model_class, json.dumps(left_out)],
        input=json.dumps(config),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    inits = list(architecture.tensors(config))
    ours = {init.name: list(init.shape) for init in inits}
    assert len(ours) == len(inits)
    assert ours == json.loads(done.stdout)
