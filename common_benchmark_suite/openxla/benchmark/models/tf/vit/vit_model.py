"""ViT in TensorFlow: Keras layers of our own on the shared checkpoint."""

from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow as tf

from openxla.benchmark.models import shared_model
from openxla.benchmark.models.architectures import vit
from openxla.benchmark.models.tf import weight_names
from openxla.benchmark.models.tf.activations import gelu
from openxla.benchmark.models.tf.keras_model import KerasModel, Weight
from openxla.benchmark.models.tf.layers import Conv, Layer, LayerNorm, Linear, SelfAttention


class EncoderLayer(Layer):
    """Attention and feed-forward, each with a layer norm before it and a residual sum."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        hidden, intermediate = config["hidden_size"], config["intermediate_size"]
        self.attention_norm = LayerNorm(hidden, config["layer_norm_eps"])
        self.attention = SelfAttention(hidden, config["num_attention_heads"])
        self.mlp_norm = LayerNorm(hidden, config["layer_norm_eps"])
        self.up = Linear(hidden, intermediate)
        self.down = Linear(intermediate, hidden)

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """[batch, seq, hidden] -> [batch, seq, hidden]."""
        x += self.attention(self.attention_norm(x))
        return x + self.down(gelu(self.up(self.mlp_norm(x))))


class ViT(Layer):
    """Patch embeddings, encoder, classifier of the first token."""

    def __init__(self, config: Mapping[str, Any], _dtype: str) -> None:
        super().__init__()
        hidden, patch = config["hidden_size"], config["patch_size"]
        positions = (config["image_size"] // patch) ** 2 + 1
        self.patches = Conv(config["num_channels"], hidden, patch, stride=patch)
        self.class_token = self.weight(1, 1, hidden)
        self.positions = self.weight(1, positions, hidden)
        self.layers = [EncoderLayer(config) for _ in range(config["num_hidden_layers"])]
        self.norm = LayerNorm(hidden, config["layer_norm_eps"])
        self.classifier = Linear(hidden, len(config["id2label"]))

    def call(self, pixel_values: tf.Tensor) -> tf.Tensor:
        """Pixels [batch, 3, height, width] -> logits [batch, labels]."""
        patches = self.patches(tf.transpose(pixel_values, (0, 2, 3, 1)))
        batch, height, width, hidden = patches.shape
        token = tf.broadcast_to(self.class_token, (batch, 1, hidden))
        x = tf.concat([token, tf.reshape(patches, (batch, height * width, hidden))], axis=1)
        x += self.positions
        for layer in self.layers:
            x = layer(x)
        return self.classifier(self.norm(x)[:, 0])


def weights(config: Mapping[str, Any]) -> Iterator[Weight]:
    """Where each tensor of the checkpoint goes."""
    yield "class_token", "vit.embeddings.cls_token", None
    yield "positions", "vit.embeddings.position_embeddings", None
    yield from weight_names.conv("patches", "vit.embeddings.patch_embeddings.projection")
    for index in range(config["num_hidden_layers"]):
        path, name = f"layers/{index}", f"vit.layers.{index}"
        yield from weight_names.norm(f"{path}/attention_norm", f"{name}.layernorm_before")
        for part, theirs in (("query", "q"), ("key", "k"), ("value", "v"), ("merge", "o")):
            yield from weight_names.linear(
                f"{path}/attention/{part}", f"{name}.attention.{theirs}_proj"
            )
        yield from weight_names.norm(f"{path}/mlp_norm", f"{name}.layernorm_after")
        yield from weight_names.linear(f"{path}/up", f"{name}.mlp.fc1")
        yield from weight_names.linear(f"{path}/down", f"{name}.mlp.fc2")
    yield from weight_names.norm("norm", "vit.layernorm")
    yield from weight_names.linear("classifier", "classifier")


def create_model(
    batch_size: int = 1,
    data_type: str = "fp32",
    model_name: str = "google/vit-base-patch16-224",
    **parameters: Any,
) -> KerasModel:
    """Returns ViT on the checkpoint of `model_name`.

    Input: pixels [batch, 3, height, width]; output: logits [batch, 1000]. Further parameters:
    `checkpoint` (`seeded` or `pretrained`) and `seed`.
    """
    given = {
        "batch_size": batch_size,
        "data_type": data_type,
        "model_name": model_name,
        **parameters,
    }
    return KerasModel(vit.ARCHITECTURE, given, ViT, weights)


if __name__ == "__main__":
    shared_model.run_once(create_model, batch_size=1, data_type="fp32", model_name="vit-tiny")
