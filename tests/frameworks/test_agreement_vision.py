"""ViT and EfficientNet are one model each in PyTorch and JAX, and have transformers' tensors."""

import json

import numpy as np
import pytest
from framework_process import run_script
from test_agreement import REFERENCES, SCRIPT

from comparative_benchmark.judge.verification import verify
from openxla.benchmark.artifacts import arrays

CASES = {
    "vit-tiny-fp32": ("vit", {"model_name": "vit-tiny", "batch_size": 4}),
    "vit-tiny-fp16": ("vit", {"model_name": "vit-tiny", "data_type": "fp16"}),
    "vit-tiny-bf16": ("vit", {"model_name": "vit-tiny", "data_type": "bf16"}),
    "vit-base-fp32": ("vit", {"model_name": "google/vit-base-patch16-224"}),
    "efficientnet-tiny-fp32": (
        "efficientnet",
        {"model_name": "efficientnet-tiny", "batch_size": 4},
    ),
    "efficientnet-tiny-fp16": (
        "efficientnet",
        {"model_name": "efficientnet-tiny", "data_type": "fp16"},
    ),
    "efficientnet-tiny-bf16": (
        "efficientnet",
        {"model_name": "efficientnet-tiny", "data_type": "bf16"},
    ),
    "efficientnet-b0-fp32": ("efficientnet", {"model_name": "google/efficientnet-b0"}),
}


@pytest.fixture(scope="module", params=CASES)
def folders(request, tmp_path_factory, environment):
    """Folders with inputs, truth and reference of each framework."""
    name, parameters = CASES[request.param]
    found = {}
    for framework, reference in REFERENCES.items():
        found[framework] = tmp_path_factory.mktemp(f"{request.param}-{framework}")
        module = f"openxla.benchmark.models.{framework}.{name}.{name}_model"
        arguments = [module, reference, str(found[framework]), json.dumps(parameters)]
        run_script(SCRIPT, arguments, environment, framework=framework)
    return found


def load(folders, stem):
    return [arrays.load_all(folder, stem)[0] for folder in folders.values()]


def test_float64_runs_agree_to_1e_9_of_the_scale(folders):
    pt, jax = load(folders, "truth")
    assert pt.dtype == jax.dtype == np.float64
    assert np.abs(pt - jax).max() < 1e-9 * np.sqrt(np.mean(np.square(jax)))


def test_inputs_are_the_same_bytes(folders):
    pt, jax = load(folders, "input")
    assert (pt.dtype, pt.tobytes()) == (jax.dtype, jax.tobytes())


def test_outputs_carry_signal(folders):
    [truth, _] = load(folders, "truth")
    assert 0.3 < truth.std() < 3
    if truth.shape[0] > 1:
        assert np.abs(truth[0] - truth[1]).max() > 0.1 * truth.std()


@pytest.mark.parametrize("judge", REFERENCES)
@pytest.mark.parametrize("candidate", REFERENCES)
def test_a_plain_run_passes_verification_whichever_framework_judges(folders, judge, candidate):
    outputs = [folders[candidate] / "reference_0.npy"]
    truth, reference = ([folders[judge] / f"{stem}_0.npy"] for stem in ("truth", "reference"))
    verdict = verify(outputs, truth, reference)
    assert verdict.passed, verdict
    assert verdict.relative_rmse > 0
