"""T5 in JAX: our own flax.nnx modules on the shared checkpoint."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from openxla.benchmark.models import shared_model
from openxla.benchmark.models.architectures import t5
from openxla.benchmark.models.jax import flax_model
from openxla.benchmark.models.jax.causal_lm import at_least_float32, split_heads
from openxla.benchmark.models.jax.layers import Linear, product

# Keys and values of one layer, [batch, heads, length, d_kv].
KeysValues = tuple[jax.Array, jax.Array]


class RmsNorm(nnx.Module):
    """Root mean square norm (Zhang and Sennrich 2019, arXiv:1910.07467)."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.scale = nnx.Param(jnp.ones(config["d_model"]))
        self.epsilon = config["layer_norm_epsilon"]

    def __call__(self, x: jax.Array) -> jax.Array:
        """[..., d_model], same shape and type out."""
        wide = at_least_float32(x)
        mean_square = jnp.mean(jnp.square(wide), axis=-1, keepdims=True)
        return (wide * jax.lax.rsqrt(mean_square + self.epsilon)).astype(x.dtype) * self.scale[...]


class Attention(nnx.Module):
    """Multi-head attention; scores are unscaled, and at least float32."""

    def __init__(self, config: Mapping[str, Any], rngs: nnx.Rngs) -> None:
        hidden, self.head_size = config["d_model"], config["d_kv"]
        inner = config["num_heads"] * self.head_size
        self.query = Linear(hidden, inner, use_bias=False, rngs=rngs)
        self.key = Linear(hidden, inner, use_bias=False, rngs=rngs)
        self.value = Linear(hidden, inner, use_bias=False, rngs=rngs)
        self.output = Linear(inner, hidden, use_bias=False, rngs=rngs)

    def keys_values(self, x: jax.Array) -> KeysValues:
        """[batch, seq, d_model] -> keys and values."""
        return split_heads(self.key(x), self.head_size), split_heads(self.value(x), self.head_size)

    def __call__(self, x: jax.Array, keys_values: KeysValues, bias: jax.Array | None) -> jax.Array:
        """[batch, seq, d_model], same shape out; bias, mask included, broadcasts to the scores."""
        keys, values = keys_values
        query = split_heads(self.query(x), self.head_size)
        wide = jnp.promote_types(x.dtype, jnp.float32)
        scores = jnp.einsum("bhqd,bhkd->bhqk", query, keys, preferred_element_type=wide)
        probabilities = jax.nn.softmax(scores if bias is None else scores + bias, axis=-1)
        context = product("bhqk,bhkd->bhqd", probabilities.astype(x.dtype), values)
        return self.output(context.swapaxes(1, 2).reshape(*x.shape[:2], -1))


class Layer(nnx.Module):
    """Attention and feed-forward, each after a norm, added to its input.

    A decoder's layer attends to the encoder's output in between.
    """

    def __init__(self, config: Mapping[str, Any], rngs: nnx.Rngs, *, decoder: bool) -> None:
        hidden, intermediate = config["d_model"], config["d_ff"]
        self.attention_norm = RmsNorm(config)
        self.attention = Attention(config, rngs)
        if decoder:
            self.cross_norm = RmsNorm(config)
            self.cross = Attention(config, rngs)
        self.norm = RmsNorm(config)
        self.up = Linear(hidden, intermediate, use_bias=False, rngs=rngs)
        self.down = Linear(intermediate, hidden, use_bias=False, rngs=rngs)

    def __call__(
        self,
        x: jax.Array,
        bias: jax.Array,
        prompt: KeysValues | None = None,
        prompt_bias: jax.Array | None = None,
        position: jax.Array | int = 0,
        cache: KeysValues | None = None,
    ) -> tuple[jax.Array, KeysValues]:
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
            keys, values = (
                jax.lax.dynamic_update_slice_in_dim(old, new, position, axis=2)
                for old, new in zip(cache, keys_values)
            )
            keys_values = keys, values
        x = x + self.attention(normed, keys_values, bias)
        if prompt is not None:
            x = x + self.cross(self.cross_norm(x), prompt, prompt_bias)
        return x + self.down(jax.nn.relu(self.up(self.norm(x)))), keys_values


class Stack(nnx.Module):
    """Encoder or decoder: layers, a final norm, and the table of biases by distance."""

    def __init__(self, config: Mapping[str, Any], rngs: nnx.Rngs, *, decoder: bool) -> None:
        self.decoder = decoder
        layers = config["num_decoder_layers" if decoder else "num_layers"]
        self.layers = nnx.List([Layer(config, rngs, decoder=decoder) for _ in range(layers)])
        self.norm = RmsNorm(config)
        self.buckets = config["relative_attention_num_buckets"]
        self.max_distance = config["relative_attention_max_distance"]
        self.biases = nnx.Param(jnp.zeros((self.buckets, config["num_heads"])))

    def bias(self, distances: np.ndarray[Any, Any]) -> jax.Array:
        """Distances of keys from queries, [...] -> [heads, ...], at least float32."""
        buckets = t5.relative_buckets(
            distances, count=self.buckets, longest=self.max_distance, bidirectional=not self.decoder
        )
        return at_least_float32(self.biases[...]).T[:, buckets]


class T5(nnx.Module):
    """Encoder and decoder with shared token embeddings."""

    def __init__(self, config: Mapping[str, Any], rngs: nnx.Rngs) -> None:
        self.words = nnx.Embed(config["vocab_size"], config["d_model"], rngs=rngs)
        self.encoder = Stack(config, rngs, decoder=False)
        self.decoder = Stack(config, rngs, decoder=True)

    def embed(self, tokens: jax.Array) -> jax.Array:
        """i32[batch, seq] -> [batch, seq, d_model]."""
        # Index the table directly, because `nnx.Embed` computes in the type it was built with, not
        # in the weights' type.
        return self.words.embedding[...][tokens]

    def encode(self, input_ids: jax.Array, mask: jax.Array | None = None) -> jax.Array:
        """input_ids i32[batch, seq] and mask [batch or 1, 1, 1, seq] -> [batch, seq, d_model]."""
        x, bias = self.embed(input_ids), self.encoder.bias(t5.distances(input_ids.shape[1]))
        for layer in self.encoder.layers:
            x, _ = layer(x, bias if mask is None else bias + mask)
        return self.encoder.norm(x)

    def prompt(self, encoded: jax.Array) -> tuple[KeysValues, ...]:
        """[batch, seq, d_model] -> keys and values of each layer's cross-attention."""
        return tuple(layer.cross.keys_values(encoded) for layer in self.decoder.layers)

    def __call__(self, input_ids: jax.Array, decoder_input_ids: jax.Array) -> jax.Array:
        """input_ids and decoder_input_ids i32[batch, seq] -> [batch, seq, d_model]."""
        prompt = self.prompt(self.encode(input_ids))
        distances = t5.distances(decoder_input_ids.shape[1])
        bias = self.decoder.bias(distances)
        bias = jnp.where(distances <= 0, bias, jnp.finfo(bias.dtype).min)
        x = self.embed(decoder_input_ids)
        for layer, keys_values in zip(self.decoder.layers, prompt):
            x, _ = layer(x, bias, keys_values)
        return self.decoder.norm(x)


create_model = flax_model.creator(t5.ARCHITECTURE, T5)


if __name__ == "__main__":
    shared_model.run_once(create_model, **t5.ARCHITECTURE.example)
