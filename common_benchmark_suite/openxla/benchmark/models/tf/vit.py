"""ViT in TensorFlow: our own Keras layers on the shared checkpoint."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from openxla.benchmark.models import shared_model
from openxla.benchmark.models.architectures import vit
from openxla.benchmark.models.tf import keras_model
from openxla.benchmark.models.tf.layers import (
    Conv,
    Layer,
    LayerNorm,
    Linear,
    MultiHeadAttention,
)
from openxla.benchmark.models.tf.operations import gelu


class EncoderLayer(Layer):
    """Attention and feed-forward, each with a layer norm before it and a residual sum."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        hidden, intermediate = config["hidden_size"], config["intermediate_size"]
        self.attention_norm = LayerNorm(hidden, config["layer_norm_eps"])
        self.attention = MultiHeadAttention(hidden, config["num_attention_heads"])
        self.mlp_norm = LayerNorm(hidden, config["layer_norm_eps"])
        self.up = Linear(hidden, intermediate)
        self.down = Linear(intermediate, hidden)

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """[batch, seq, hidden] -> [batch, seq, hidden]."""
        y = self.attention_norm(x)
        x += self.attention(y, y)
        return x + self.down(gelu(self.up(self.mlp_norm(x))))


class ViT(Layer):
    """Patch embeddings, encoder, classifier of the first token."""

    def __init__(self, config: Mapping[str, Any]) -> None:
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


create_model = keras_model.creator(vit.ARCHITECTURE, ViT)


if __name__ == "__main__":
    shared_model.run_once(create_model, **vit.ARCHITECTURE.example)
