"""The decoder of Llama's pattern, also used by Gemma, as Keras layers."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import tensorflow as tf

from openxla.benchmark.models.architectures.causal_lm import rotary_frequencies
from openxla.benchmark.models.tf import causal_lm
from openxla.benchmark.models.tf.activations import gelu_tanh
from openxla.benchmark.models.tf.attention import split_heads
from openxla.benchmark.models.tf.greedy import Cache, LayerCache
from openxla.benchmark.models.tf.layers import Layer, Linear
from openxla.benchmark.models.tf.products import at_least_float32

# Cosines and sines of the positions, [seq, head_dim / 2].
Rotation = tuple[tf.Tensor, tf.Tensor]

ACTIVATIONS: Mapping[str, Callable[[tf.Tensor], tf.Tensor]] = MappingProxyType(
    {"silu": tf.nn.silu, "gelu_pytorch_tanh": gelu_tanh}
)


class RmsNorm(Layer):
    """Root mean square norm (Zhang and Sennrich 2019, arXiv:1910.07467); variable `scale`.

    `around_one`: Gemma scales by 1 + weight before the result is rounded to the model's type; Llama
    and T5 scale by the weight after.
    """

    def __init__(self, size: int, epsilon: float, *, around_one: bool = False) -> None:
        super().__init__()
        self.epsilon, self.around_one = epsilon, around_one
        self.scale = self.weight(size)

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """[..., size], same shape and type out."""
        wide = causal_lm.widened(x)
        mean_square = tf.reduce_mean(tf.square(wide), axis=-1, keepdims=True)
        wide *= tf.math.rsqrt(mean_square + self.epsilon)
        if self.around_one:
            return tf.cast(wide * (1 + tf.cast(self.scale, wide.dtype)), x.dtype)
        return tf.cast(wide, x.dtype) * self.scale


class Attention(Layer):
    """Causal attention with rotary positions; query heads share keys and values in groups."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        hidden, self.head_size = config["hidden_size"], config["head_dim"]
        queries = config["num_attention_heads"] * self.head_size
        keys = config["num_key_value_heads"] * self.head_size
        self.query = Linear(hidden, queries, bias=False)
        self.key = Linear(hidden, keys, bias=False)
        self.value = Linear(hidden, keys, bias=False)
        self.output_ = Linear(queries, hidden, bias=False)

    def call(
        self,
        x: tf.Tensor,
        rotation: Rotation,
        *,
        position: tf.Tensor | int,
        cache: LayerCache | None,
    ) -> tuple[tf.Tensor, LayerCache]:
        """[batch, seq, hidden], same shape out, and keys and values."""
        query, key, value = (
            split_heads(part(x), self.head_size) for part in (self.query, self.key, self.value)
        )
        query, key = rotate(query, rotation), rotate(key, rotation)
        context, cache = causal_lm.attention(query, key, value, position, cache)
        return self.output_(context), cache


class DecoderLayer(Layer):
    """Attention and gated feed-forward, each after a norm, added to its input."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        hidden, intermediate = config["hidden_size"], config["intermediate_size"]
        self.attention_norm = _norm(config)
        self.attention = Attention(config)
        self.norm = _norm(config)
        self.gate = Linear(hidden, intermediate, bias=False)
        self.up = Linear(hidden, intermediate, bias=False)
        self.down = Linear(intermediate, hidden, bias=False)
        self.activation = ACTIVATIONS[config["hidden_act"]]

    def call(
        self,
        x: tf.Tensor,
        rotation: Rotation,
        *,
        position: tf.Tensor | int,
        cache: LayerCache | None,
    ) -> tuple[tf.Tensor, LayerCache]:
        """[batch, seq, hidden], same shape out, and keys and values."""
        context, cache = self.attention(
            self.attention_norm(x), rotation, position=position, cache=cache
        )
        x += context
        y = self.norm(x)
        return x + self.down(self.activation(self.gate(y)) * self.up(y)), cache


class RotaryDecoder(causal_lm.Decoder):
    """Embedding, layers, norm, head; a tied head shares the token embeddings."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        hidden, vocabulary = config["hidden_size"], config["vocab_size"]
        self.frequencies = rotary_frequencies(config)
        self.words = self.weight(vocabulary, hidden)
        self.word_scale = hidden**0.5 if config["model_type"] == "gemma" else None
        self.layers = [DecoderLayer(config) for _ in range(config["num_hidden_layers"])]
        self.norm = _norm(config)
        tied = config["tie_word_embeddings"]
        self.head = None if tied else Linear(hidden, vocabulary, bias=False)

    def hidden(
        self, tokens: tf.Tensor, position: tf.Tensor | int = 0, cache: Cache | None = None
    ) -> tuple[tf.Tensor, Cache]:
        """See `Decoder.hidden`."""
        x = tf.gather(self.words, tokens)
        if self.word_scale is not None:
            x *= tf.constant(self.word_scale, x.dtype)
        wide = at_least_float32(x.dtype)
        places = tf.cast(position + tf.range(tokens.shape[1]), wide)
        angles = places[:, tf.newaxis] * tf.constant(list(self.frequencies), wide)
        rotation = tf.cast(tf.cos(angles), x.dtype), tf.cast(tf.sin(angles), x.dtype)
        layers = []
        for index, layer in enumerate(self.layers):
            earlier = None if cache is None else cache[index]
            x, kept = layer(x, rotation, position=position, cache=earlier)
            layers.append(kept)
        return self.norm(x), tuple(layers)

    def logits(self, x: tf.Tensor) -> tf.Tensor:
        """See `Decoder.logits`."""
        return causal_lm.tied_head(x, self.words) if self.head is None else self.head(x)


def rotate(x: tf.Tensor, rotation: Rotation) -> tf.Tensor:
    """Rotates pairs of numbers half a head apart by their angles; [batch, heads, seq, head_dim]."""
    cosine, sine = rotation
    first, second = tf.split(x, 2, axis=-1)
    return tf.concat([first * cosine - second * sine, second * cosine + first * sine], axis=-1)


def _norm(config: Mapping[str, Any]) -> RmsNorm:
    around_one = config["model_type"] == "gemma"
    return RmsNorm(config["hidden_size"], config["rms_norm_eps"], around_one=around_one)
