"""Whisper is one model in PyTorch and JAX."""

import numpy as np
import pytest
from agreement_support import load, relative, run_all

from comparative_benchmark.judge import verification

CASES = {
    f"whisper-{data_type}": (
        "whisper",
        {
            "model_name": "whisper-tiny-test",
            "seq_len": 16,
            "batch_size": 4,
            "data_type": data_type,
        },
    )
    for data_type in ("fp32", "bf16", "fp16")
}


@pytest.fixture(scope="module", params=CASES)
def outputs(request, tmp_path_factory, environment):
    """Folders of each framework, see `run_all`."""
    name, parameters = CASES[request.param]
    return run_all(name, parameters, tmp_path_factory, environment)


def test_float64_runs_agree_to_1e_9_of_the_scale(outputs):
    truths = load(outputs, "truth")
    [pt], [jax] = truths["pt"], truths["jax"]
    assert pt.dtype == jax.dtype == np.float64
    assert relative(pt, jax) < 1e-9


def test_inputs_are_the_same_bytes(outputs):
    inputs = load(outputs, "input")
    assert len(inputs["pt"]) == len(inputs["jax"])
    for pt, jax in zip(inputs["pt"], inputs["jax"], strict=True):
        assert (pt.dtype, pt.shape, pt.tobytes()) == (jax.dtype, jax.shape, jax.tobytes())


def test_outputs_carry_signal(outputs):
    [truth] = load(outputs, "truth")["pt"]
    assert 0.1 < truth.std() < 10
    for row in truth[1:]:
        assert np.abs(truth[0] - row).max() > 0.01 * truth.std()


@pytest.mark.parametrize(("candidate", "judge"), [("jax", "pt"), ("pt", "jax")])
def test_each_framework_passes_the_verification_of_the_other(outputs, candidate, judge):
    files = {
        stem: sorted(outputs[framework].glob(f"{stem}_*.npy"))
        for stem, framework in (("compiled", candidate), ("truth", judge), ("reference", judge))
    }
    assert all(files.values())
    verdict = verification.verify(files["compiled"], files["truth"], files["reference"])
    assert verdict.passed, verdict.reason
