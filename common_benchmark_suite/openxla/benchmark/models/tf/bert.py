"""BERT in TensorFlow: our own Keras layers on the shared checkpoint."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from openxla.benchmark.models import shared_model
from openxla.benchmark.models.architectures import bert
from openxla.benchmark.models.tf import keras_model
from openxla.benchmark.models.tf.layers import Layer, LayerNorm, Linear, MultiHeadAttention
from openxla.benchmark.models.tf.operations import at_least_float32, gelu


class EncoderLayer(Layer):
    """Attention and feed-forward, each with a residual sum and a layer norm after it."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        hidden, intermediate = config["hidden_size"], config["intermediate_size"]
        self.attention = MultiHeadAttention(hidden, config["num_attention_heads"])
        self.attention_norm = LayerNorm(hidden, config["layer_norm_eps"])
        self.up = Linear(hidden, intermediate)
        self.down = Linear(intermediate, hidden)
        self.output_norm = LayerNorm(hidden, config["layer_norm_eps"])

    def call(self, x: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
        """[batch, seq, hidden] and bias [batch, 1, 1, seq] -> [batch, seq, hidden]."""
        x = self.attention_norm(x + self.attention(x, x, bias))
        return self.output_norm(x + self.down(gelu(self.up(x))))


class Bert(Layer):
    """Embeddings and encoder."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        hidden = config["hidden_size"]
        self.words = self.weight(config["vocab_size"], hidden)
        self.positions = self.weight(config["max_position_embeddings"], hidden)
        self.types = self.weight(config["type_vocab_size"], hidden)
        self.norm = LayerNorm(hidden, config["layer_norm_eps"])
        self.layers = [EncoderLayer(config) for _ in range(config["num_hidden_layers"])]

    def call(self, input_ids: tf.Tensor, attention_mask: tf.Tensor) -> tf.Tensor:
        """input_ids and attention_mask i32[batch, seq] -> [batch, seq, hidden]."""
        seq = input_ids.shape[1]
        # All tokens have type 0, and position i is row i.
        x = tf.gather(self.words, input_ids) + self.types[0] + self.positions[:seq]
        x = self.norm(x)
        wide = at_least_float32(x.dtype)
        seen = attention_mask[:, tf.newaxis, tf.newaxis, :] > 0
        bias = tf.where(seen, tf.zeros((), wide), tf.constant(wide.min, wide))
        for layer in self.layers:
            x = layer(x, bias)
        return x


create_model = keras_model.creator(bert.ARCHITECTURE, Bert)


if __name__ == "__main__":
    shared_model.run_once(create_model, **bert.ARCHITECTURE.example)
