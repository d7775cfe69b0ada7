"""KerasHub's BERT and ResNet on its JAX backend, with the weights of our checkpoints.

Each function returns a pure function, its weights and its inputs, ready for `jax.jit`.
"""

import importlib
import os
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from _plain_jax import arrays, config_of

from openxla.benchmark.models.jax.flax_model import FlaxModel

os.environ["KERAS_BACKEND"] = "jax"  # read when keras is imported, which is below


def keras_bert(
    model: FlaxModel, inputs: Sequence[jax.Array]
) -> tuple[Any, Any, Sequence[jax.Array]]:
    """Returns KerasHub's BERT; its GELU is the tanh approximation, where ours is exact."""
    keras_hub: Any = importlib.import_module("keras_hub")

    backbone = keras_hub.models.BertBackbone.from_preset(str(model.checkpoint))
    ids, mask = inputs
    given = (ids, jnp.zeros_like(ids), mask)

    def run(weights: Any, token_ids: Any, segment_ids: Any, padding_mask: Any) -> Any:
        features = {
            "token_ids": token_ids,
            "segment_ids": segment_ids,
            "padding_mask": padding_mask,
        }
        return backbone.stateless_call(*weights, features)[0]["sequence_output"]

    return run, _variables(backbone), given


def keras_resnet(
    model: FlaxModel, inputs: Sequence[jax.Array]
) -> tuple[Any, Any, Sequence[jax.Array]]:
    """Returns KerasHub's ResNet v1.5 with our weights; its input is channels-last already."""
    keras_hub: Any = importlib.import_module("keras_hub")

    config = config_of(model)
    keras_model = keras_hub.models.ImageClassifier(
        keras_hub.models.ResNetBackbone(
            input_conv_filters=[config["embedding_size"]],
            input_conv_kernel_sizes=[7],
            stackwise_num_filters=[width // 4 for width in config["hidden_sizes"]],
            stackwise_num_blocks=config["depths"],
            stackwise_num_strides=[1, *[2] * (len(config["depths"]) - 1)],
            block_type="bottleneck_block",
            image_shape=(config["image_size"], config["image_size"], 3),
        ),
        num_classes=len(config["id2label"]),
    )
    weights, backbone = arrays(model), keras_model.backbone

    def port(theirs: str, ours: str) -> None:
        backbone.get_layer(f"{theirs}_conv").set_weights([weights[f"{ours}.convolution.weight"]])
        parts = ("weight", "bias", "running_mean", "running_var")
        backbone.get_layer(f"{theirs}_bn").set_weights(
            [weights[f"{ours}.normalization.{part}"] for part in parts]
        )

    port("conv1", "resnet.embedder.embedder")
    for stage, depth in enumerate(config["depths"]):
        for block in range(depth):
            theirs = f"stack{stage}_block{block}"
            ours = f"resnet.encoder.stages.{stage}.layers.{block}"
            if block == 0:
                port(f"{theirs}_0", f"{ours}.shortcut")
            for layer in range(3):
                port(f"{theirs}_{layer + 1}", f"{ours}.layer.{layer}")
    keras_model.output_dense.set_weights([weights[f"classifier.1.{p}"] for p in ("weight", "bias")])

    def run(variables: Any, pixels: Any) -> Any:
        return keras_model.stateless_call(*variables, pixels)[0]

    return run, _variables(keras_model), [inputs[0].transpose(0, 2, 3, 1)]


def _variables(keras_model: Any) -> Any:
    kinds = (keras_model.trainable_variables, keras_model.non_trainable_variables)
    return tuple([variable.value for variable in kind] for kind in kinds)
