"""The text encoder of Stable Diffusion in TensorFlow: our own Keras layers."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from openxla.benchmark.models import shared_model
from openxla.benchmark.models.architectures import sd_clip
from openxla.benchmark.models.tf import keras_model
from openxla.benchmark.models.tf.layers import Layer, LayerNorm, Linear, MultiHeadAttention


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
        x += self.attention(y, y, causal=True)
        y = self.up(self.mlp_norm(x))
        # CLIP's approximation of GELU (Hendrycks and Gimpel 2016, arXiv:1606.08415).
        return x + self.down(y * tf.sigmoid(1.702 * y))


class SdClip(Layer):
    """Embeddings, encoder, norm."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        hidden = config["hidden_size"]
        self.words = self.weight(config["vocab_size"], hidden)
        self.positions = self.weight(config["max_position_embeddings"], hidden)
        self.layers = [EncoderLayer(config) for _ in range(config["num_hidden_layers"])]
        self.norm = LayerNorm(hidden, config["layer_norm_eps"])

    def call(self, input_ids: tf.Tensor) -> tf.Tensor:
        """input_ids i32[batch, seq] -> [batch, seq, hidden]."""
        # Position i is row i.
        x = tf.gather(self.words, input_ids) + self.positions[: input_ids.shape[1]]
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)


create_model = keras_model.creator(sd_clip.ARCHITECTURE, SdClip)


if __name__ == "__main__":
    shared_model.run_once(create_model, **sd_clip.ARCHITECTURE.example)
