"""Networks of diffusers take all of a checkpoint's weights, or none."""

import subprocess
import sys

import pytest
from agreement_support import need

SCRIPT = """
import json, sys
from pathlib import Path
import diffusers
from openxla.benchmark.models import checkpoints
from openxla.benchmark.models.architectures import TensorInit, sd_unet
from openxla.benchmark.models.pt import diffusers_model
directory, left_out, added = sys.argv[1:]
directory = Path(directory)
config = sd_unet.ARCHITECTURE.config("sd-unet-tiny")
inits = [init for init in sd_unet.ARCHITECTURE.tensors(config) if init.name != left_out]
if added:
    inits.append(TensorInit(name=added, shape=(1,)))
(directory / "config.json").write_text(json.dumps(config))
checkpoints.write_weights(directory / checkpoints.WEIGHTS_FILE, inits, seed=0)
model = diffusers_model.build(diffusers.UNet2DConditionModel, directory)
tensors = checkpoints.load_tensors(sd_unet.ARCHITECTURE, directory)
diffusers_model.load_weights(model, tensors, "bf16")
print({str(value.dtype) for value in model.state_dict().values()})
print({value.device.type for value in model.state_dict().values()})
"""


def load(directory, left_out="", added=""):
    need("diffusers")
    return subprocess.run(
        [sys.executable, "-c", SCRIPT, str(directory), left_out, added],
        capture_output=True,
        text=True,
        check=False,
    )


def test_all_weights_arrive_in_the_asked_type(tmp_path):
    done = load(tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["{'torch.bfloat16'}", "{'cpu'}"]


@pytest.mark.parametrize(
    ("left_out", "added", "complaint"),
    [("conv_out.bias", "", "Missing key"), ("", "conv_out.extra", "Unexpected key")],
)
def test_a_checkpoint_that_does_not_fit_is_refused(tmp_path, left_out, added, complaint):
    done = load(tmp_path, left_out, added)
    assert done.returncode != 0
    assert complaint in done.stderr
    assert (left_out or added) in done.stderr
