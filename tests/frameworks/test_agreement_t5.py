"""T5 is one model in PyTorch and JAX, with transformers' tensors, and generates the same tokens."""

import json

import numpy as np
import pytest
from framework_process import run_script
from test_agreement import REFERENCES, SCRIPT

from comparative_benchmark.judge.verification import verify
from openxla.benchmark.artifacts import arrays
from openxla.benchmark.models.architectures.t5 import relative_buckets

CASES = {
    "t5-tiny-fp32": {"model_name": "t5-tiny", "seq_len": 48, "batch_size": 4},
    "t5-tiny-fp16": {"model_name": "t5-tiny", "seq_len": 48, "data_type": "fp16"},
    "t5-tiny-bf16": {"model_name": "t5-tiny", "seq_len": 48, "data_type": "bf16"},
    "t5-small-fp32": {"model_name": "t5-small", "seq_len": 64},
}

# Generates freely, along the truth's own tokens (`forced`), along others (`other`), and with other
# tokens in the padding (`padded`).
GENERATE = """
import importlib, json, sys
from pathlib import Path
import numpy as np
from comparative_benchmark.backends.api import load_object
from openxla.benchmark.artifacts import arrays
from openxla.benchmark.models.shared_model import as_tuple
module, reference, target, parameters = sys.argv[1:]
model = importlib.import_module(module).create_model(**json.loads(parameters))
compute = load_object(reference)
ids, mask = inputs = model.preprocess(model.generate_default_inputs())
free, _ = compute(model, inputs)
truth, forced = compute(model, model.verification_inputs(inputs, free))
def run(*inputs):
    return [np.asarray(value) for value in as_tuple(model.forward(*inputs))]
own = run(*inputs)
values = {
    "input": inputs, "free": free, "truth": truth, "forced": forced, "own": own,
    "other": run(ids, mask, (own[0] + 1) % 1024),
    "padded": run(np.where(mask > 0, ids, 7).astype(ids.dtype), mask),
}
for stem, arrays_of_stem in values.items():
    arrays.save_all(Path(target), stem, arrays_of_stem)
"""
NEW = 5
GENERATIONS = {
    data_type: {
        "model_name": "t5-tiny",
        "seq_len": 32,
        "batch_size": 2,
        "max_new_tokens": NEW,
        "data_type": data_type,
    }
    for data_type in ("fp32", "fp16", "bf16")
}


BUCKETS = """
import json, sys
from pathlib import Path
import torch
from transformers.models.t5.modeling_t5 import T5Attention
count, longest, bidirectional = map(int, sys.argv[1:4])
distances = torch.arange(-600, 601)
buckets = T5Attention._relative_position_bucket(distances, bool(bidirectional), count, longest)
Path(sys.argv[4]).write_text(json.dumps(buckets.tolist()))
"""


def run_in_each(environment, folder, script, name, parameters):
    folders = {}
    for framework, reference in REFERENCES.items():
        folders[framework] = folder / framework
        folders[framework].mkdir()
        module = f"openxla.benchmark.models.{framework}.{name}.{name}_model"
        arguments = [module, reference, str(folders[framework]), json.dumps(parameters)]
        run_script(script, arguments, environment, framework=framework)
    return folders


@pytest.fixture(scope="module", params=CASES)
def scored(request, tmp_path_factory, environment):
    """Folders with inputs, truth and reference of each framework."""
    folder = tmp_path_factory.mktemp(request.param)
    return run_in_each(environment, folder, SCRIPT, "t5", CASES[request.param])


@pytest.fixture(scope="module", params=GENERATIONS)
def generated(request, tmp_path_factory, environment):
    """Folders with what `GENERATE` saves, of each framework."""
    folder = tmp_path_factory.mktemp(request.param)
    parameters = GENERATIONS[request.param]
    return run_in_each(environment, folder, GENERATE, "t5_for_cond_gen", parameters)


def load(folders, stem):
    return [arrays.load_all(folder, stem) for folder in folders.values()]


def relative(values, truth):
    return np.abs(values - truth).max() / np.sqrt(np.mean(np.square(truth)))


def test_float64_runs_agree_to_1e_9_of_the_scale(scored):
    [pt], [jax] = load(scored, "truth")
    assert pt.dtype == jax.dtype == np.float64
    assert relative(pt, jax) < 1e-9


def test_inputs_are_the_same_bytes(scored):
    pt, jax = load(scored, "input")
    assert [(x.dtype, x.tobytes()) for x in pt] == [(x.dtype, x.tobytes()) for x in jax]
    assert len(pt) == 2


def test_outputs_carry_signal_of_rows_and_tokens(scored):
    [truth], _ = load(scored, "truth")
    assert 0.3 < truth.std() < 3
    # What all tokens share, encoder and decoder would give without looking at their inputs.
    assert truth.mean(axis=(0, 1)).std() < 0.8 * truth.std()
    if truth.shape[0] > 1:
        assert np.abs(truth[0] - truth[1]).max() > 0.1 * truth.std()


@pytest.mark.parametrize("judge", REFERENCES)
@pytest.mark.parametrize("candidate", REFERENCES)
def test_a_plain_run_passes_verification_whichever_framework_judges(scored, judge, candidate):
    outputs = [scored[candidate] / "reference_0.npy"]
    truth, reference = ([scored[judge] / f"{stem}_0.npy"] for stem in ("truth", "reference"))
    verdict = verify(outputs, truth, reference)
    assert verdict.passed, verdict
    assert verdict.relative_rmse > 0


def test_float64_runs_generate_the_same_tokens_by_the_same_logits(generated):
    (pt_tokens, pt_logits), (jax_tokens, jax_logits) = load(generated, "free")
    assert pt_tokens.shape == (2, NEW)
    assert pt_tokens.dtype == jax_tokens.dtype == np.int32
    np.testing.assert_array_equal(pt_tokens, jax_tokens)
    assert pt_logits.dtype == jax_logits.dtype == np.float64
    assert relative(pt_logits, jax_logits) < 1e-9
    np.testing.assert_array_equal(pt_tokens, pt_logits.argmax(axis=-1))


def test_generated_tokens_vary(generated):
    (tokens, logits), _ = load(generated, "free")
    assert 0.3 < logits.std() < 3
    assert min(len(set(row)) for row in tokens.tolist()) > 2
    assert tokens[0].tolist() != tokens[1].tolist()


def test_forced_along_its_own_tokens_truth_stays_what_it_is(generated):
    for free, forced in zip(load(generated, "free"), load(generated, "truth"), strict=True):
        np.testing.assert_array_equal(free[0], forced[0])
        assert relative(free[1], forced[1]) < 1e-12


def test_forced_tokens_are_what_is_fed(generated):
    for own, other in zip(load(generated, "own"), load(generated, "other"), strict=True):
        difference = np.abs(own[1] - other[1]).max(axis=(0, 2))
        assert difference[0] == 0
        assert (difference[1:] > 0.1 * own[1].std()).all()


def test_padding_is_not_attended_to(generated):
    for inputs, own, padded in zip(
        load(generated, "input"), load(generated, "own"), load(generated, "padded"), strict=True
    ):
        assert (inputs[1] == 0).any()
        for values, with_other_padding in zip(own, padded, strict=True):
            np.testing.assert_array_equal(values, with_other_padding)


@pytest.mark.parametrize("judge", REFERENCES)
@pytest.mark.parametrize("candidate", REFERENCES)
def test_logits_along_the_truths_tokens_pass_verification(generated, judge, candidate):
    outputs = [generated[candidate] / "forced_1.npy"]
    truth, reference = ([generated[judge] / f"{stem}_1.npy"] for stem in ("truth", "forced"))
    verdict = verify(outputs, truth, reference)
    assert verdict.passed, verdict
    assert verdict.relative_rmse > 0


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize(("count", "longest"), [(32, 128), (16, 32)])
def test_distances_fall_into_transformers_buckets(
    count, longest, bidirectional, tmp_path, environment
):
    target = tmp_path / "buckets.json"
    arguments = [*map(str, (count, longest, int(bidirectional))), str(target)]
    run_script(BUCKETS, arguments, environment, framework="pt")
    ours = relative_buckets(
        np.arange(-600, 601), count=count, longest=longest, bidirectional=bidirectional
    )
    assert ours.tolist() == json.loads(target.read_text())
