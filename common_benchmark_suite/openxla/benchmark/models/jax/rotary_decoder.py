"""The decoder of Llama's pattern, also used by Gemma, as flax.nnx modules."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from openxla.benchmark.models.architectures.causal_lm import rotary_frequencies
from openxla.benchmark.models.jax import causal_lm
from openxla.benchmark.models.jax.causal_lm import Cache, LayerCache
from openxla.benchmark.models.jax.layers import Linear, product

# Cosines and sines of the positions, [seq, head_dim / 2].
Rotation = tuple[jax.Array, jax.Array]

ACTIVATIONS: Mapping[str, Callable[[jax.Array], jax.Array]] = MappingProxyType(
    {"silu": jax.nn.silu, "gelu_pytorch_tanh": lambda x: jax.nn.gelu(x, approximate=True)}
)


class RmsNorm(nnx.Module):
    """Root mean square norm (Zhang and Sennrich 2019, arXiv:1910.07467).

    Gemma scales by 1 + weight before the result is rounded to the model's type; Llama scales by the
    weight after.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.scale = nnx.Param(jnp.ones(config["hidden_size"]))
        self.epsilon = config["rms_norm_eps"]
        self.around_one = config["model_type"] == "gemma"

    def __call__(self, x: jax.Array) -> jax.Array:
        """[..., hidden], same shape and type out."""
        wide, scale = causal_lm.at_least_float32(x), self.scale[...]
        mean_square = jnp.mean(jnp.square(wide), axis=-1, keepdims=True)
        wide = wide * jax.lax.rsqrt(mean_square + self.epsilon)
        if self.around_one:
            return (wide * (1 + causal_lm.at_least_float32(scale))).astype(x.dtype)
        return wide.astype(x.dtype) * scale


class Attention(nnx.Module):
    """Causal attention with rotary positions; query heads share keys and values in groups."""

    def __init__(self, config: Mapping[str, Any], rngs: nnx.Rngs) -> None:
        hidden, self.head_size = config["hidden_size"], config["head_dim"]
        queries = config["num_attention_heads"] * self.head_size
        keys = config["num_key_value_heads"] * self.head_size
        self.query = Linear(hidden, queries, use_bias=False, rngs=rngs)
        self.key = Linear(hidden, keys, use_bias=False, rngs=rngs)
        self.value = Linear(hidden, keys, use_bias=False, rngs=rngs)
        self.output = Linear(queries, hidden, use_bias=False, rngs=rngs)

    def __call__(
        self,
        x: jax.Array,
        rotation: Rotation,
        position: jax.Array | int,
        cache: LayerCache | None,
    ) -> tuple[jax.Array, LayerCache]:
        """[batch, seq, hidden], same shape out, and keys and values."""
        query, key, value = (
            causal_lm.split_heads(part(x), self.head_size)
            for part in (self.query, self.key, self.value)
        )
        query, key = rotate(query, rotation), rotate(key, rotation)
        context, cache = causal_lm.attention(query, key, value, position, cache)
        return self.output(context), cache


class Layer(nnx.Module):
    """Attention and gated feed-forward, each after a norm, added to its input."""

    def __init__(self, config: Mapping[str, Any], rngs: nnx.Rngs) -> None:
        hidden, intermediate = config["hidden_size"], config["intermediate_size"]
        self.attention_norm = RmsNorm(config)
        self.attention = Attention(config, rngs)
        self.norm = RmsNorm(config)
        self.gate = Linear(hidden, intermediate, use_bias=False, rngs=rngs)
        self.up = Linear(hidden, intermediate, use_bias=False, rngs=rngs)
        self.down = Linear(intermediate, hidden, use_bias=False, rngs=rngs)
        self.activation = ACTIVATIONS[config["hidden_act"]]

    def __call__(
        self,
        x: jax.Array,
        rotation: Rotation,
        position: jax.Array | int,
        cache: LayerCache | None,
    ) -> tuple[jax.Array, LayerCache]:
        """[batch, seq, hidden], same shape out, and keys and values."""
        context, cache = self.attention(self.attention_norm(x), rotation, position, cache)
        x = x + context
        y = self.norm(x)
        return x + self.down(self.activation(self.gate(y)) * self.up(y)), cache


class RotaryDecoder(causal_lm.Decoder):
    """Embedding, layers, norm, head; a tied head shares the token embeddings."""

    def __init__(self, config: Mapping[str, Any], rngs: nnx.Rngs) -> None:
        hidden, vocabulary = config["hidden_size"], config["vocab_size"]
        self.frequencies = tuple(rotary_frequencies(config))
        self.words = nnx.Embed(vocabulary, hidden, rngs=rngs)
        self.word_scale = hidden**0.5 if config["model_type"] == "gemma" else None
        self.layers = nnx.List([Layer(config, rngs) for _ in range(config["num_hidden_layers"])])
        self.norm = RmsNorm(config)
        tied = config["tie_word_embeddings"]
        self.head = (
            None if tied else nnx.data(Linear(hidden, vocabulary, use_bias=False, rngs=rngs))
        )

    def hidden(
        self, tokens: jax.Array, position: jax.Array | int = 0, cache: Cache | None = None
    ) -> tuple[jax.Array, Cache]:
        """See `Decoder.hidden`."""
        # Index the table directly, because `nnx.Embed` computes in the type it was built with, not
        # in that of the weights.
        x = self.words.embedding[...][tokens]
        if self.word_scale is not None:
            x = x * jnp.asarray(self.word_scale, x.dtype)
        positions = position + jnp.arange(tokens.shape[1], dtype=jnp.int32)
        wide = jnp.promote_types(x.dtype, jnp.float32)
        angles = positions[:, None].astype(wide) * jnp.asarray(self.frequencies, wide)
        rotation = jnp.cos(angles).astype(x.dtype), jnp.sin(angles).astype(x.dtype)
        layers = []
        for index, layer in enumerate(self.layers):
            x, kept = layer(x, rotation, position, None if cache is None else cache[index])
            layers.append(kept)
        return self.norm(x), tuple(layers)

    def logits(self, x: jax.Array) -> jax.Array:
        """See `Decoder.logits`."""
        if self.head is not None:
            return self.head(x)
        return product("...h,vh->...v", x, self.words.embedding[...])


def rotate(x: jax.Array, rotation: Rotation) -> jax.Array:
    """Rotates pairs of numbers half a head apart by their angles; [batch, heads, seq, head_dim]."""
    cosine, sine = rotation
    first, second = jnp.split(x, 2, axis=-1)
    return jnp.concatenate(
        [first * cosine - second * sine, second * cosine + first * sine], axis=-1
    )
