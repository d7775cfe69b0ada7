"""GPT-2 in TensorFlow: our own Keras layers on the shared checkpoint."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from openxla.benchmark.models import shared_model
from openxla.benchmark.models.architectures import gpt2
from openxla.benchmark.models.tf import causal_lm
from openxla.benchmark.models.tf.causal_lm import Cache, LayerCache
from openxla.benchmark.models.tf.layers import Layer, LayerNorm, Linear, split_heads
from openxla.benchmark.models.tf.operations import gelu_tanh


class DecoderLayer(Layer):
    """Attention and feed-forward, each after a layer norm, added to its input."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        hidden, epsilon = config["n_embd"], config["layer_norm_epsilon"]
        self.head_size = hidden // config["n_head"]
        self.attention_norm = LayerNorm(hidden, epsilon)
        self.query_key_value = Linear(hidden, 3 * hidden)
        self.output_ = Linear(hidden, hidden)
        self.norm = LayerNorm(hidden, epsilon)
        self.up = Linear(hidden, 4 * hidden)
        self.down = Linear(4 * hidden, hidden)

    def call(
        self, x: tf.Tensor, *, position: tf.Tensor | int, cache: LayerCache | None
    ) -> tuple[tf.Tensor, LayerCache]:
        """[batch, seq, hidden], same shape out, and keys and values."""
        query, key, value = (
            split_heads(part, self.head_size)
            for part in tf.split(self.query_key_value(self.attention_norm(x)), 3, axis=-1)
        )
        context, cache = causal_lm.attention(query, key, value, position, cache)
        x += self.output_(context)
        return x + self.down(gelu_tanh(self.up(self.norm(x)))), cache


class Gpt2(causal_lm.Decoder):
    """Embeddings, layers, and a head that shares the token embeddings."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        hidden = config["n_embd"]
        self.words = self.weight(config["vocab_size"], hidden)
        self.positions = self.weight(config["n_positions"], hidden)
        self.layers = [DecoderLayer(config) for _ in range(config["n_layer"])]
        self.norm = LayerNorm(hidden, config["layer_norm_epsilon"])

    def hidden(
        self, tokens: tf.Tensor, position: tf.Tensor | int = 0, cache: Cache | None = None
    ) -> tuple[tf.Tensor, Cache]:
        """See `Decoder.hidden`."""
        places = position + tf.range(tokens.shape[1])
        x = tf.gather(self.words, tokens) + tf.gather(self.positions, places)
        layers = []
        for index, layer in enumerate(self.layers):
            x, new = layer(x, position=position, cache=None if cache is None else cache[index])
            layers.append(new)
        return self.norm(x), tuple(layers)

    def logits(self, x: tf.Tensor) -> tf.Tensor:
        """See `Decoder.logits`."""
        return causal_lm.tied_head(x, self.words)


create_model = causal_lm.creator(gpt2.ARCHITECTURE, Gpt2)


if __name__ == "__main__":
    shared_model.run_once(create_model, **gpt2.ARCHITECTURE.example)
