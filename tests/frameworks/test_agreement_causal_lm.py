"""Decoder-only language models: one model in each framework, and generation that is that model."""

import numpy as np
import pytest
from framework_process import run_script

from comparative_benchmark.judge import verification
from openxla.benchmark.artifacts import arrays

SCRIPT = """
import importlib, json, sys
from pathlib import Path
import numpy as np
from comparative_benchmark.backends.api import load_object
from openxla.benchmark.artifacts import arrays

framework, module, reference, target, model_name = sys.argv[1:]
compute = load_object(reference)
create = importlib.import_module(module).create_model
target = Path(target)
given = {"model_name": model_name, "batch_size": 2, "seq_len": 24}

def save(kind, **values):
    (target / kind).mkdir()
    for stem, items in values.items():
        arrays.save_all(target / kind, stem, items)

def compiled(model, inputs):
    if framework == "pt":
        return None
    import jax
    outputs = jax.jit(model.apply)(model.params, *map(jax.numpy.asarray, inputs))
    return [np.asarray(value) for value in (outputs if isinstance(outputs, tuple) else [outputs])]

for data_type in ("fp32", "fp16", "bf16"):
    scoring = create(**given, data_type=data_type)
    inputs = scoring.preprocess(scoring.generate_default_inputs())
    truth, same_type = compute(scoring, inputs)
    candidate = compiled(scoring, inputs) or same_type
    save(f"scored-{data_type}", input=inputs, truth=truth, reference=same_type, candidate=candidate)

    if data_type == "fp16":
        continue  # test_agreement_t5 generates in fp16, by the same code
    generating = create(**given, data_type=data_type, max_new_tokens=4)
    free, _ = compute(generating, inputs)
    forced = generating.verification_inputs(inputs, free)
    truth, same_type = compute(generating, forced)
    candidate = compiled(generating, forced) or same_type
    # Each token's logits once more, of the whole sequence at once and without a cache.
    sequence = np.concatenate([inputs[0], free[0][:, :-1]], axis=1)
    whole, _ = compute(scoring, [sequence])
    save(f"generated-{data_type}", free=free, truth=truth, reference=same_type,
         candidate=candidate, whole=[whole[0][:, inputs[0].shape[1] - 1:]])

scoring = create(**given)
ids = np.repeat(scoring.preprocess(scoring.generate_default_inputs())[0][:1], 3, axis=0)
ids[1, 0] += 1
ids[2, -1] += 1
save("changed", truth=compute(scoring, [ids])[0])

generating = create(**given, max_new_tokens=4)
(ids,) = generating.preprocess(generating.generate_default_inputs())
fed = np.array([[7, 8, 9, 10], [7, 11, 9, 10]], np.int32)
save("fed", truth=compute(generating, [np.repeat(ids[:1], 2, axis=0), fed])[0])
"""
REFERENCES = {
    "pt": "comparative_benchmark.pt_inductor.reference:compute",
    "jax": "comparative_benchmark.jax_xla.reference:compute",
}
OTHER = {"pt": "jax", "jax": "pt"}
GENERATED = ("fp32", "bf16")
KINDS = (
    *(("scored", data_type) for data_type in ("fp32", "fp16", "bf16")),
    *(("generated", data_type) for data_type in GENERATED),
)


def _relative(values, truth):
    scale = np.sqrt(np.mean(np.square(truth)))
    return float(np.abs(values.astype(np.float64) - truth).max() / scale)


@pytest.fixture(scope="module", params=["gpt2", "llama", "gemma"])
def outputs(request, tmp_path_factory, environment):
    """Returns a function that loads what a framework computed."""
    name = request.param
    directories = {}
    for framework, reference in REFERENCES.items():
        directories[framework] = tmp_path_factory.mktemp(f"{name}-{framework}")
        module = f"openxla.benchmark.models.{framework}.{name}.{name}_model"
        arguments = [framework, module, reference, str(directories[framework]), f"{name}-tiny"]
        run_script(SCRIPT, arguments, environment, framework=framework)

    def load(framework, kind, stem):
        return arrays.load_all(directories[framework] / kind, stem)

    load.directories = directories
    return load


@pytest.mark.parametrize(("kind", "data_type"), KINDS)
def test_float64_runs_agree_to_1e_9_of_the_scale(outputs, kind, data_type):
    pt, jax = (outputs(name, f"{kind}-{data_type}", "truth")[-1] for name in REFERENCES)
    assert pt.dtype == jax.dtype == np.float64
    assert _relative(pt, jax) < 1e-9


@pytest.mark.parametrize("data_type", GENERATED)
def test_frameworks_choose_the_same_tokens(outputs, data_type):
    (pt, _), (jax, _) = (outputs(name, f"generated-{data_type}", "free") for name in REFERENCES)
    assert pt.dtype == jax.dtype == np.int32
    assert pt.shape == (2, 4)
    assert np.array_equal(pt, jax)
    assert len(np.unique(pt)) > 2


def test_inputs_are_the_same_bytes(outputs):
    (pt,), (jax,) = (outputs(name, "scored-fp32", "input") for name in REFERENCES)
    assert (pt.dtype, pt.tobytes()) == (jax.dtype, jax.tobytes())


@pytest.mark.parametrize("kind", ["scored", "generated"])
def test_outputs_carry_signal(outputs, kind):
    truth = outputs("jax", f"{kind}-fp32", "truth")[-1]
    assert 0.3 < truth.std() < 3
    assert np.abs(truth[0] - truth[1]).max() > 0.1 * truth.std()


@pytest.mark.parametrize("framework", REFERENCES)
@pytest.mark.parametrize(("kind", "data_type"), KINDS)
def test_a_framework_passes_by_the_others_truth(outputs, kind, data_type, framework):
    own, other = (
        outputs.directories[name] / f"{kind}-{data_type}" for name in (framework, OTHER[framework])
    )
    last = 0 if kind == "scored" else 1
    files = {
        stem: [directory / f"{stem}_{last}.npy"]
        for stem, directory in (("candidate", own), ("truth", other), ("reference", other))
    }
    verdict = verification.verify(files["candidate"], files["truth"], files["reference"])
    assert verdict.passed, verdict.reason


@pytest.mark.parametrize("framework", REFERENCES)
def test_generated_logits_are_float32(outputs, framework):
    for data_type in GENERATED:
        logits = outputs(framework, f"generated-{data_type}", "reference")[1]
        assert logits.dtype == np.float32


@pytest.mark.parametrize("framework", REFERENCES)
def test_each_token_is_the_one_with_the_largest_logit(outputs, framework):
    tokens, logits = outputs(framework, "generated-fp32", "free")
    assert np.array_equal(tokens, logits.argmax(axis=-1))


@pytest.mark.parametrize("framework", REFERENCES)
def test_feeding_the_chosen_tokens_changes_nothing(outputs, framework):
    for free, forced in zip(
        outputs(framework, "generated-fp32", "free"),
        outputs(framework, "generated-fp32", "truth"),
        strict=True,
    ):
        assert np.array_equal(free, forced)


@pytest.mark.parametrize("framework", REFERENCES)
def test_logits_with_the_cache_are_those_of_the_whole_sequence(outputs, framework):
    _, cached = outputs(framework, "generated-fp32", "free")
    (whole,) = outputs(framework, "generated-fp32", "whole")
    assert _relative(cached, whole) < 1e-9


@pytest.mark.parametrize("framework", REFERENCES)
def test_a_token_is_seen_by_later_ones_only(outputs, framework):
    (logits,) = outputs(framework, "changed", "truth")
    assert _relative(logits[1, -1], logits[0, -1]) > 0.01  # the first token matters to the last
    assert _relative(logits[2, :-1], logits[0, :-1]) < 1e-9
    assert _relative(logits[2, -1], logits[0, -1]) > 0.1


@pytest.mark.parametrize("framework", REFERENCES)
def test_forced_tokens_are_fed(outputs, framework):
    tokens, logits = outputs(framework, "fed", "truth")
    assert np.array_equal(tokens, logits.argmax(axis=-1))  # its own choice, not what was fed
    assert _relative(logits[0, :2], logits[1, :2]) < 1e-9
    assert _relative(logits[0, 2], logits[1, 2]) > 0.1
