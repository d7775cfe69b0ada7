"""T5 in TensorFlow: our own Keras layers on the shared checkpoint."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from openxla.benchmark.models import shared_model
from openxla.benchmark.models.architectures import t5
from openxla.benchmark.models.tf import keras_model
from openxla.benchmark.models.tf.causal_lm import LayerCache, RmsNorm, insert, widened
from openxla.benchmark.models.tf.layers import Layer, Linear, merge_heads, split_heads
from openxla.benchmark.models.tf.operations import matmul


class Attention(Layer):
    """Multi-head attention; scores are unscaled, and the softmax is at least float32."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        hidden, self.head_size = config["d_model"], config["d_kv"]
        inner = config["num_heads"] * self.head_size
        self.query = Linear(hidden, inner, bias=False)
        self.key = Linear(hidden, inner, bias=False)
        self.value = Linear(hidden, inner, bias=False)
        self.output_ = Linear(inner, hidden, bias=False)

    def keys_values(self, x: tf.Tensor) -> LayerCache:
        """[batch, seq, d_model] -> keys and values, [batch, heads, seq, d_kv]."""
        return split_heads(self.key(x), self.head_size), split_heads(self.value(x), self.head_size)

    def call(self, x: tf.Tensor, keys_values: LayerCache, bias: tf.Tensor | None) -> tf.Tensor:
        """[batch, seq, d_model], same shape out; bias, mask included, broadcasts to the scores."""
        keys, values = keys_values
        query = split_heads(self.query(x), self.head_size)
        scores = widened(matmul(query, keys, transpose_b=True))
        probabilities = tf.nn.softmax(scores if bias is None else scores + bias)
        return self.output_(merge_heads(matmul(tf.cast(probabilities, x.dtype), values)))


class StackLayer(Layer):
    """Attention and feed-forward, each after a norm, added to its input.

    A decoder's layer attends to the encoder's output in between.
    """

    def __init__(self, config: Mapping[str, Any], *, decoder: bool) -> None:
        super().__init__()
        hidden, intermediate = config["d_model"], config["d_ff"]
        epsilon = config["layer_norm_epsilon"]
        self.attention_norm = RmsNorm(hidden, epsilon)
        self.attention = Attention(config)
        if decoder:
            self.cross_norm = RmsNorm(hidden, epsilon)
            self.cross = Attention(config)
        self.norm = RmsNorm(hidden, epsilon)
        self.up = Linear(hidden, intermediate, bias=False)
        self.down = Linear(intermediate, hidden, bias=False)

    def call(
        self,
        x: tf.Tensor,
        bias: tf.Tensor,
        prompt: LayerCache | None = None,
        prompt_bias: tf.Tensor | None = None,
        *,
        position: tf.Tensor | int = 0,
        cache: LayerCache | None = None,
    ) -> tuple[tf.Tensor, LayerCache]:
        """[batch, seq, d_model], same shape out, and keys and values of self-attention.

        Args:
          x: hidden states.
          bias: added to the scores of self-attention.
          prompt: keys and values of the encoder's output; None in the encoder.
          prompt_bias: added to the scores of cross-attention.
          position: position of the first token in the cache.
          cache: earlier keys and values, with room for the new ones.
        """
        normed = self.attention_norm(x)
        keys_values = self.attention.keys_values(normed)
        if cache is not None:
            keys_values = insert(cache, keys_values, position)
        x += self.attention(normed, keys_values, bias)
        if prompt is not None:
            x += self.cross(self.cross_norm(x), prompt, prompt_bias)
        return x + self.down(tf.nn.relu(self.up(self.norm(x)))), keys_values


class Stack(Layer):
    """Encoder or decoder: layers, a final norm, and the table of biases by distance."""

    def __init__(self, config: Mapping[str, Any], *, decoder: bool) -> None:
        super().__init__()
        self.decoder = decoder
        layers = config["num_decoder_layers" if decoder else "num_layers"]
        self.layers = [StackLayer(config, decoder=decoder) for _ in range(layers)]
        self.norm = RmsNorm(config["d_model"], config["layer_norm_epsilon"])
        self.buckets = config["relative_attention_num_buckets"]
        self.max_distance = config["relative_attention_max_distance"]
        self.biases = self.weight(self.buckets, config["num_heads"])

    def bias(self, distances: np.ndarray[Any, Any]) -> tf.Tensor:
        """Distances of keys from queries, [...] -> [heads, ...], at least float32."""
        buckets = t5.relative_buckets(
            distances, count=self.buckets, longest=self.max_distance, bidirectional=not self.decoder
        )
        return tf.gather(tf.transpose(widened(tf.convert_to_tensor(self.biases))), buckets, axis=1)


class T5(Layer):
    """Encoder and decoder with shared token embeddings."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        self.words = self.weight(config["vocab_size"], config["d_model"])
        self.encoder = Stack(config, decoder=False)
        self.decoder = Stack(config, decoder=True)

    def embed(self, tokens: tf.Tensor) -> tf.Tensor:
        """i32[batch, seq] -> [batch, seq, d_model]."""
        return tf.gather(self.words, tokens)

    def encode(self, input_ids: tf.Tensor, hidden_bias: tf.Tensor | None = None) -> tf.Tensor:
        """input_ids i32[batch, seq] -> [batch, seq, d_model].

        Args:
          input_ids: the tokens.
          hidden_bias: hides padding, [batch or 1, 1, 1, seq].
        """
        x, bias = self.embed(input_ids), self.encoder.bias(t5.distances(input_ids.shape[1]))
        for layer in self.encoder.layers:
            x, _ = layer(x, bias if hidden_bias is None else bias + hidden_bias)
        return self.encoder.norm(x)

    def prompt(self, encoded: tf.Tensor) -> tuple[LayerCache, ...]:
        """[batch, seq, d_model] -> keys and values of each layer's cross-attention."""
        return tuple(layer.cross.keys_values(encoded) for layer in self.decoder.layers)

    def call(self, input_ids: tf.Tensor, decoder_input_ids: tf.Tensor) -> tf.Tensor:
        """input_ids and decoder_input_ids i32[batch, seq] -> [batch, seq, d_model]."""
        prompt = self.prompt(self.encode(input_ids))
        distances = t5.distances(decoder_input_ids.shape[1])
        bias = self.decoder.bias(distances)
        bias = tf.where(distances <= 0, bias, tf.constant(bias.dtype.min, bias.dtype))
        x = self.embed(decoder_input_ids)
        for layer, keys_values in zip(self.decoder.layers, prompt, strict=True):
            x, _ = layer(x, bias, keys_values)
        return self.decoder.norm(x)


create_model = keras_model.creator(t5.ARCHITECTURE, T5)


if __name__ == "__main__":
    shared_model.run_once(create_model, **t5.ARCHITECTURE.example)
