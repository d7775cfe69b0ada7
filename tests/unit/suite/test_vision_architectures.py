"""ViT and EfficientNet: published sizes, padding, names, and the OpenXLA suite's case."""

import hashlib
import itertools
import math

import pytest

from openxla.benchmark.comparative_suite import catalog
from openxla.benchmark.def_types import DefinitionError
from openxla.benchmark.models import architectures, checkpoints
from openxla.benchmark.models.architectures import efficientnet

VIT, EFFICIENTNET = architectures.get("vit"), architectures.get("efficientnet")
TINY = {"vit-tiny": VIT, "efficientnet-tiny": EFFICIENTNET}
GOLDEN = {
    "vit-tiny": "463e06ce6366bd502ae1e31658bb56f1658ff1d7b71b5651ad35ed628c6e9927",
    "efficientnet-tiny": "aeab957df9981d0f0f5b95849d818864c8bd398c6a8871942a2b33c966d7ca22",
}
COUNTERS = ("running_mean", "running_var", "num_batches_tracked")


@pytest.mark.parametrize(
    ("architecture", "model_name", "parameters"),
    [
        # As timm and torchvision publish them.
        (VIT, "google/vit-base-patch16-224", 86_567_656),
        (EFFICIENTNET, "google/efficientnet-b0", 5_288_548),
        (EFFICIENTNET, "google/efficientnet-b7", 66_347_960),
    ],
)
def test_a_model_has_the_published_number_of_parameters(architecture, model_name, parameters):
    tensors = architecture.tensors(architecture.config(model_name))
    learned = [tensor for tensor in tensors if not tensor.name.endswith(COUNTERS)]
    assert sum(math.prod(tensor.shape) for tensor in learned) == parameters


@pytest.mark.parametrize("name", TINY)
def test_a_seeded_checkpoint_is_the_golden_bytes(name):
    weights = checkpoints.seeded(TINY[name], name) / "model.safetensors"
    assert hashlib.sha256(weights.read_bytes()).hexdigest() == GOLDEN[name]


@pytest.mark.parametrize("model_name", EFFICIENTNET.configs)
def test_strided_windows_are_padded_like_same_of_tensorflow(model_name):
    """The paper's code pads so; transformers needs a list of the blocks with an odd size for it."""
    config = EFFICIENTNET.config(model_name)
    size = math.ceil(config["image_size"] / 2)
    for block in efficientnet.blocks(config):
        output = math.ceil(size / block.stride)
        missing = (output - 1) * block.stride + block.kernel - size
        assert block.padding == (missing // 2, missing - missing // 2)
        size = output


@pytest.mark.parametrize(
    ("model_name", "count", "strided"),
    [("google/efficientnet-b0", 16, 4), ("efficientnetb7", 55, 4), ("efficientnet-tiny", 5, 2)],
)
def test_blocks_follow_each_other(model_name, count, strided):
    blocks = list(efficientnet.blocks(EFFICIENTNET.config(model_name)))
    assert len(blocks) == count
    assert sum(block.stride == 2 for block in blocks) == strided
    assert all(one.outputs == next_.inputs for one, next_ in itertools.pairwise(blocks))
    assert all(block.inputs == block.outputs for block in blocks if block.residual)
    assert all(block.expands == (block.expanded != block.inputs) for block in blocks)


def test_the_tiny_network_has_what_the_real_ones_have():
    tiny = list(efficientnet.blocks(EFFICIENTNET.config("efficientnet-tiny")))
    for fact in (
        lambda block: block.kernel,
        lambda block: block.stride,
        lambda block: block.expands,
        lambda block: block.residual,
        # Zeros in front of a strided window: as many as behind it, or one less.
        lambda block: block.stride == 2 and block.padding[0] == block.padding[1],
    ):
        real = efficientnet.blocks(EFFICIENTNET.config("google/efficientnet-b7"))
        assert {fact(block) for block in tiny} == {fact(block) for block in real}


def test_weights_of_the_hub_have_our_names():
    older = {
        "attention.q_proj": "attention.attention.query",
        "attention.k_proj": "attention.attention.key",
        "attention.v_proj": "attention.attention.value",
        "attention.o_proj": "attention.output.dense",
        "mlp.fc1": "intermediate.dense",
        "mlp.fc2": "output.dense",
    }
    changed = 0
    for tensor in VIT.tensors(VIT.config("vit-tiny")):
        name = tensor.name.replace("vit.layers.", "vit.encoder.layer.")
        for ours, theirs in older.items():
            name = name.replace(ours, theirs)
        changed += name != tensor.name
        assert VIT.canonical_weight_name(name) == tensor.name
        assert VIT.canonical_weight_name(tensor.name) == tensor.name
    assert changed == 2 * 16


def test_the_seeds_case_of_vit_exists_unchanged():
    (case,) = catalog.select(
        catalog.all_benchmarks(),
        name="models/VIT_CLASSIFICATION_JAX_3X224X224XF32/inputs/INPUT_DATA_MODEL_DEFAULT",
    )
    assert dict(case.model.model_parameters) == {
        "batch_size": 1,
        "model_name": "google/vit-base-patch16-224",
    }
    assert dict(case.verify_parameters) == {"absolute_tolerance": 0.5}
    assert set(case.tags) == {"vision-transformer", "fp32", "batch-1"}


def test_vit_without_a_type_is_fp32():
    given = {"model_name": "google/vit-base-patch16-224", "batch_size": 1}
    assert VIT.complete(given) == {**given, "data_type": "fp32"}
    half = {**given, "data_type": "fp16"}
    assert VIT.complete(half) == half


def test_efficientnet_without_a_type_is_refused():
    given = {"model_name": "efficientnet-tiny", "batch_size": 1}
    with pytest.raises(DefinitionError, match="data_type"):
        EFFICIENTNET.input_specs(EFFICIENTNET.complete(given))


def test_efficientnet_b7_is_one_workload_under_both_of_its_names():
    identities = {
        checkpoints.identity(EFFICIENTNET, {"model_name": name})
        for name in ("google/efficientnet-b7", "efficientnetb7")
    }
    assert len(identities) == 1
    assert EFFICIENTNET.canonical_name("efficientnetb7") == "google/efficientnet-b7"


@pytest.mark.parametrize("name", TINY)
@pytest.mark.parametrize("data_type", ["fp32", "fp16", "bf16"])
def test_default_inputs_are_as_declared_and_rows_differ(name, data_type, tmp_path):
    parameters = {"model_name": name, "batch_size": 3, "data_type": data_type}
    (pixels,) = TINY[name].preprocess(TINY[name].default_inputs(parameters), parameters, tmp_path)
    (spec,) = TINY[name].input_specs(parameters)
    assert pixels.shape == spec.shape
    assert (
        pixels.dtype.name == {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}[data_type]
    )
    assert len({row.tobytes() for row in pixels}) == 3
