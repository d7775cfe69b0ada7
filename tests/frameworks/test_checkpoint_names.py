"""Our checkpoints have the same names and shapes as the libraries' own models."""

import json

import pytest
from agreement_support import need
from framework_process import run_script

from openxla.benchmark.models import architectures

pytestmark = pytest.mark.frameworks

# On torch's meta device: shapes without memory, also for the real sizes.
SCRIPT = """
import importlib, json, sys
from pathlib import Path
import torch
library, name, config, target = sys.argv[1:]
model_class = getattr(importlib.import_module(library), name)
config = json.loads(config)
with torch.device("meta"):
    if library == "diffusers":
        model = model_class.from_config(config)
    else:
        model = model_class(model_class.config_class(**config))
tied = set(getattr(model, "all_tied_weights_keys", None) or {})
shapes = {key: list(value.shape) for key, value in model.state_dict().items() if key not in tied}
Path(target).write_text(json.dumps([shapes, sorted(tied)]))
"""
DIFFUSERS = {"sd_unet": "UNet2DConditionModel", "sd_vae": "AutoencoderKL"}
# The picture decoder is used without the encoder of diffusers' class.
LEFT_OUT = {"sd_vae": ("encoder.", "quant_conv.")}
CLASSES = {"sd_clip": "CLIPTextModel", "t5": "T5ForConditionalGeneration"}
TIED = {
    **{name: ["lm_head.weight"] for name in ("gpt2", "llama", "gemma")},
    "t5": ["decoder.embed_tokens.weight", "encoder.embed_tokens.weight", "lm_head.weight"],
}
NAMES = (
    *("gpt2", "llama", "gemma", "t5", "vit", "efficientnet", "whisper"),
    *("sd_clip", "sd_unet", "sd_vae"),
)
MODELS = [(name, model_name) for name in NAMES for model_name in architectures.get(name).configs]


@pytest.mark.parametrize(("name", "model_name"), MODELS)
def test_names_and_shapes_are_those_of_the_library(name, model_name, tmp_path, environment):
    library = "diffusers" if name in DIFFUSERS else "transformers"
    need(library)
    architecture = architectures.get(name)
    config = dict(architecture.config(model_name))
    model_class = DIFFUSERS.get(name) or CLASSES.get(name) or config["architectures"][0]
    target = tmp_path / "tensors.json"
    arguments = [library, model_class, json.dumps(config), str(target)]
    run_script(SCRIPT, arguments, environment, framework="pt")
    theirs, tied = json.loads(target.read_text())
    inits = list(architecture.tensors(config))
    ours = {init.name: list(init.shape) for init in inits}
    assert len(ours) == len(inits)
    left_out = LEFT_OUT.get(name, ())
    assert ours == {key: shape for key, shape in theirs.items() if not key.startswith(left_out)}
    if name in TIED:
        assert tied == (TIED[name] if config.get("tie_word_embeddings", True) else [])
