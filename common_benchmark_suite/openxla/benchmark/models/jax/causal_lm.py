"""Decoder-only language models in JAX, scoring or generating.

The cache holds keys and values as [batch, heads, length, head_dim], the layout that attention
needs. While the prompt is read, attention only covers the prompt, not the empty positions.
"""

import abc
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from openxla.benchmark.def_types import Parameters
from openxla.benchmark.models import shared_model
from openxla.benchmark.models.architectures import Architecture
from openxla.benchmark.models.generation import max_new_tokens
from openxla.benchmark.models.jax.flax_model import FlaxModel
from openxla.benchmark.models.jax.greedy import GreedyModel
from openxla.benchmark.models.jax.layers import product

# Keys and values of one layer, [batch, heads, length, head_dim].
LayerCache = tuple[jax.Array, jax.Array]
Cache = tuple[LayerCache, ...]


class Decoder(nnx.Module):
    """Base of the flax.nnx modules: tokens to hidden states, hidden states to logits."""

    @abc.abstractmethod
    def hidden(
        self, tokens: jax.Array, position: jax.Array | int = 0, cache: Cache | None = None
    ) -> tuple[jax.Array, Cache]:
        """Token ids i32[batch, seq] -> [batch, seq, hidden], and the keys and values of each layer.

        Without a cache, the tokens start at position 0 and attend to each other. With one, they are
        written into it from `position` on and attend to everything up to themselves.
        """

    @abc.abstractmethod
    def logits(self, x: jax.Array) -> jax.Array:
        """[..., hidden] -> [..., vocab]."""

    def __call__(self, input_ids: jax.Array) -> jax.Array:
        """input_ids i32[batch, seq] -> logits [batch, seq, vocab]."""
        return self.logits(self.hidden(input_ids)[0])


class CausalGenerator(GreedyModel):
    """A `Decoder` that generates."""

    def prefill(self, params: Any, input_ids: jax.Array) -> tuple[jax.Array, Cache]:
        """See `GenerationModel.prefill`."""
        decoder = self.module(params)
        x, layers = decoder.hidden(input_ids)
        room = ((0, 0), (0, 0), (0, self.max_new_tokens), (0, 0))
        cache = tuple((jnp.pad(keys, room), jnp.pad(values, room)) for keys, values in layers)
        return at_least_float32(decoder.logits(x[:, -1])), cache

    def decode(
        self, params: Any, token: jax.Array, position: jax.Array, cache: Cache
    ) -> tuple[jax.Array, Cache]:
        """See `GenerationModel.decode`."""
        decoder = self.module(params)
        x, cache = decoder.hidden(token[:, None], position, cache)
        return at_least_float32(decoder.logits(x[:, -1])), cache


def creator(
    architecture: Architecture, build: Callable[[Mapping[str, Any], nnx.Rngs], Decoder]
) -> Callable[..., FlaxModel]:
    """Returns a `create_model` whose models generate if `max_new_tokens` is given, or score."""

    def model(parameters: Parameters) -> FlaxModel:
        kind = FlaxModel if max_new_tokens(parameters) is None else CausalGenerator
        return kind(architecture, parameters, build)

    return shared_model.creator(architecture, model)


def at_least_float32(x: jax.Array) -> jax.Array:
    """Returns 16-bit numbers as float32, others unchanged."""
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))


def attention(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    position: jax.Array | int = 0,
    cache: LayerCache | None = None,
) -> tuple[jax.Array, LayerCache]:
    """Causal attention; several heads of the query may share a head of key and value.

    Scores and their softmax are at least float32, as in fused attention kernels.

    Args:
      query: [batch, heads, seq, head_dim].
      key: [batch, key heads, seq, head_dim].
      value: of the same shape.
      position: position of the first token.
      cache: earlier keys and values, with room for the new ones.

    Returns:
      [batch, seq, heads * head_dim], and keys and values including the new ones.
    """
    batch, heads, seq, size = query.shape
    if cache is not None:
        key, value = (
            jax.lax.dynamic_update_slice_in_dim(old, new, position, axis=2)
            for old, new in zip(cache, (key, value))
        )
    key_heads, length = key.shape[1:3]
    # Heads that share a key become rows of one product, so keys are not repeated.
    grouped = query.reshape(batch, key_heads, heads // key_heads * seq, size)
    wide = jnp.promote_types(query.dtype, jnp.float32)
    scores = jnp.einsum("bkqd,bkld->bkql", grouped, key, preferred_element_type=wide)
    scores = scores.reshape(batch, key_heads, heads // key_heads, seq, length) * size**-0.5
    places = jnp.arange(length, dtype=jnp.int32)
    visible = places <= position + jnp.arange(seq, dtype=jnp.int32)[:, None]
    probabilities = jax.nn.softmax(jnp.where(visible, scores, jnp.finfo(wide).min), axis=-1)
    probabilities = probabilities.astype(value.dtype).reshape(*grouped.shape[:3], length)
    context = product("bkql,bkld->bkqd", probabilities, value)
    context = context.reshape(batch, heads, seq, size).swapaxes(1, 2)
    return context.reshape(batch, seq, heads * size), (key, value)


def split_heads(x: jax.Array, size: int) -> jax.Array:
    """[batch, seq, heads * size] -> [batch, heads, seq, size]."""
    batch, seq, width = x.shape
    return x.reshape(batch, seq, width // size, size).swapaxes(1, 2)
