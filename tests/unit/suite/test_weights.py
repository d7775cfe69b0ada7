"""Where the tensors of a checkpoint go in our own modules, without a framework."""

import pkgutil

import numpy as np
import pytest

from openxla.benchmark.models import architectures, checkpoint_tensors, checkpoints
from openxla.benchmark.models.architectures import bert, efficientnet, gpt2, resnet, sd_pipeline
from openxla.benchmark.models.architectures.base import Architecture, TensorInit


def named(name):
    """The architecture of a module, or None for a module of shared code."""
    try:
        return architectures.get(name)
    except architectures.DefinitionError:
        return None


ALL = [
    found
    for module in pkgutil.iter_modules(architectures.__path__)
    if (found := named(module.name)) is not None
]


class Net(Architecture):
    """Five tensors, each of another kind."""

    name = "net"
    version = 1
    configs = {"net-tiny": {}}
    standard = {"model_name": "net-tiny", "size": 8}
    defaults = {"size": 4, "depth": 2}
    module_names = ((r"^their_linear\b", "layers.0.linear"), (r"^table\b", "words"))
    unused_tensors = ("pooler.",)
    input_specs = output_specs = default_input_files = default_inputs = preprocess = None

    def tensors(self, config):
        """Ignores the configuration and returns the same tensors."""
        shapes = {
            "their_linear.weight": (3, 2),
            "conv.weight": (4, 3, 1, 2),
            "norm.running_var": (3,),
            "table.weight": (5, 2),
            "pooler.weight": (2, 2),
        }
        yield from (TensorInit(name=name, shape=shape) for name, shape in shapes.items())
        yield TensorInit(name="norm.num_batches_tracked", shape=(), dtype="I64")


Net.__abstractmethods__ = frozenset()
NET = Net()
SHAPES = {
    ("layers", 0, "linear", "kernel"): (2, 3),
    ("conv", "kernel"): (1, 2, 3, 4),
    ("norm", "var"): (3,),
    ("words",): (5, 2),
}
TENSORS = {
    init.name: np.arange(np.prod(init.shape, dtype=int)).reshape(init.shape)
    for init in NET.tensors({})
}


def test_tensors_go_to_their_variables_in_our_layout():
    found = {
        path: (name, value)
        for path, name, value in checkpoint_tensors.placed_variables(NET, {}, SHAPES, TENSORS)
    }
    assert {path: value.shape for path, (_, value) in found.items()} == SHAPES
    name, kernel = found["layers", 0, "linear", "kernel"]
    assert name == "their_linear.weight"
    assert (kernel == TENSORS[name].T).all()
    assert found["conv", "kernel"][1][0, 1, 2, 3] == TENSORS["conv.weight"][3, 2, 0, 1]


def test_matrices_that_are_in_out_already_stay():
    class InOut(Net):
        matrices_are_in_out = True

    InOut.__abstractmethods__ = frozenset()
    shapes = {**SHAPES, ("layers", 0, "linear", "kernel"): (3, 2)}
    found = {
        path: value
        for path, _, value in checkpoint_tensors.placed_variables(InOut(), {}, shapes, TENSORS)
    }
    assert found["layers", 0, "linear", "kernel"] is TENSORS["their_linear.weight"]
    assert found["conv", "kernel"].shape == (1, 2, 3, 4)


@pytest.mark.parametrize(
    ("shapes", "tensors", "said"),
    [
        (SHAPES, {**TENSORS, "table.weight": np.zeros((5, 3))}, "(5, 3), but words is (5, 2)"),
        (
            SHAPES,
            {name: value for name, value in TENSORS.items() if name != "norm.running_var"},
            "the checkpoint lacks: norm.running_var",
        ),
        ({**SHAPES, ("head", "bias"): (2,)}, TENSORS, "without a tensor: head/bias"),
        (
            {path: shape for path, shape in SHAPES.items() if path != ("words",)},
            TENSORS,
            "without a variable: table.weight",
        ),
    ],
)
def test_what_does_not_fit_is_named_after_all_that_does(shapes, tensors, said):
    found = []
    with pytest.raises(ValueError, match="the weights do not match net") as caught:
        found.extend(checkpoint_tensors.placed_variables(NET, {}, shapes, tensors))
    assert said in str(caught.value)
    assert len(found) >= 3
    assert all(value.shape == tuple(shapes[path]) for path, _, value in found)


@pytest.mark.parametrize("architecture", ALL, ids=lambda architecture: architecture.name)
def test_no_two_tensors_of_an_architecture_go_to_one_place(architecture):
    for config in architecture.configs.values():
        names = [init.name for init in architecture.tensors(config)]
        assert len({architecture.module_name(name, config) for name in names}) == len(names) > 0


@pytest.mark.parametrize(
    ("architecture", "theirs", "ours"),
    [
        (bert, "encoder.layer.1.attention.output.LayerNorm.bias", "layers.1.attention_norm.bias"),
        (gpt2, "transformer.h.0.attn.c_attn.weight", "layers.0.query_key_value.weight"),
        (
            efficientnet,
            "efficientnet.encoder.blocks.2.depthwise_conv.depthwise_norm.running_mean",
            "blocks.2.filter.norm.running_mean",
        ),
        (
            resnet,
            "resnet.encoder.stages.1.layers.0.layer.2.convolution.weight",
            "blocks.3.expand.conv.weight",
        ),
        (sd_pipeline, "vae.decoder.mid_block.resnets.1.conv1.bias", "vae.mid_after.conv1.bias"),
    ],
)
def test_names_follow_our_modules(architecture, theirs, ours):
    found = architecture.ARCHITECTURE
    config = next(reversed(found.configs.values()))
    assert theirs in {init.name for init in found.tensors(config)}
    assert found.module_name(theirs, config) == ours


def test_create_model_is_told_what_a_definition_leaves_out():
    assert NET.complete({"depth": 3}) == {"size": 4, "depth": 3}
    assert NET.creation_parameters({"seed": 1}) == {
        "batch_size": 1,
        "data_type": "fp32",
        "model_name": "net-tiny",
        "size": 8,
        "depth": 2,
        "seed": 1,
    }


@pytest.mark.parametrize("architecture", ALL, ids=lambda architecture: architecture.name)
def test_standard_and_example_are_models_of_the_architecture(architecture):
    for parameters in ({}, architecture.example):
        given = architecture.creation_parameters(parameters)
        inputs, outputs = architecture.input_specs(given), architecture.output_specs(given)
        assert {spec.shape[0] for spec in (*inputs, *outputs)} == {1}
        assert checkpoints.identity(architecture, given).startswith("seeded-0-")
