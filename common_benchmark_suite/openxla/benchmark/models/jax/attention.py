"""Attention and layer norms in JAX, for models whose truth is a float64 run.

`jax.nn.dot_product_attention` computes the same, but always takes the softmax in float32, which
would cost the float64 run nine digits.
"""

from collections.abc import Collection

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from openxla.benchmark.models.jax.layers import Linear, product


def attention(
    query: jax.Array, key: jax.Array, value: jax.Array, *, heads: int, causal: bool = False
) -> jax.Array:
    """Multi-head attention; scores and softmax are at least float32.

    Args:
      query: [batch, queries, heads * head_size].
      key: [batch, keys, heads * head_size].
      value: [batch, keys, heads * head_size].
      heads: number of heads.
      causal: whether a query only attends to keys up to its own position.

    Returns:
      [batch, queries, heads * head_size], of the type of the query.
    """
    batch, length, width = query.shape
    head_size = width // heads
    # Heads come first: with positions first, XLA's matrix products on CPUs are slower, by a fifth
    # for Whisper.
    query, key, value = (
        part.reshape(batch, -1, heads, head_size).swapaxes(1, 2) for part in (query, key, value)
    )
    wide = jnp.promote_types(query.dtype, jnp.float32)
    scores = jnp.einsum("bhqd,bhkd->bhqk", query, key, preferred_element_type=wide)
    scores *= np.sqrt(1 / head_size).astype(wide)
    if causal:
        visible = np.tri(length, dtype=np.bool_)
        scores = jnp.where(visible, scores, jnp.finfo(wide).min)
    weights = jax.nn.softmax(scores, axis=-1).astype(value.dtype)
    context = product("bhqk,bhkd->bhqd", weights, value)
    return context.swapaxes(1, 2).reshape(batch, length, width)


class MultiHeadAttention(nnx.Module):
    """Multi-head attention of a sequence to itself or to another.

    Args:
      width: width of queries and outputs.
      heads: number of heads.
      rngs: random generators of flax.
      context_width: width of the other sequence; `width` unless given.
      biases: which of query, key and value have one; the output always does.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        rngs: nnx.Rngs,
        *,
        context_width: int | None = None,
        biases: Collection[str] = ("query", "key", "value"),
    ) -> None:
        context_width = context_width or width
        self.heads = heads
        self.query = Linear(width, width, use_bias="query" in biases, rngs=rngs)
        self.key = Linear(context_width, width, use_bias="key" in biases, rngs=rngs)
        self.value = Linear(context_width, width, use_bias="value" in biases, rngs=rngs)
        self.output = Linear(width, width, rngs=rngs)

    def __call__(self, x: jax.Array, context: jax.Array, *, causal: bool = False) -> jax.Array:
        """[batch, queries, width], [batch, keys, context_width] -> [batch, queries, width]."""
        query, key, value = self.query(x), self.key(context), self.value(context)
        return self.output(attention(query, key, value, heads=self.heads, causal=causal))


class SelfAttention(nnx.Module):
    """Multi-head attention of a sequence to itself, all in the type of the sequence."""

    def __init__(self, width: int, heads: int, rngs: nnx.Rngs) -> None:
        self.heads = heads
        self.query = Linear(width, width, rngs=rngs)
        self.key = Linear(width, width, rngs=rngs)
        self.value = Linear(width, width, rngs=rngs)
        self.output = Linear(width, width, rngs=rngs)

    def __call__(self, x: jax.Array, bias: jax.Array | None = None) -> jax.Array:
        """[batch, seq, width], and [batch, 1, 1, seq] to add to the scores, -> as x."""
        batch, seq, width = x.shape
        head_size = width // self.heads
        query, key, value = (
            part(x).reshape(batch, seq, self.heads, head_size).swapaxes(1, 2)
            for part in (self.query, self.key, self.value)
        )
        scores = product("bhqd,bhkd->bhqk", query, key) * np.sqrt(1 / head_size).astype(x.dtype)
        weights = jax.nn.softmax(scores if bias is None else scores + bias, axis=-1)
        context = product("bhqk,bhkd->bhqd", weights, value)
        return self.output(context.swapaxes(1, 2).reshape(batch, seq, width))


def layer_norm(width: int, epsilon: float, rngs: nnx.Rngs) -> nnx.LayerNorm:
    """Returns a layer norm (arXiv:1607.06450)."""
    # Two-pass variance: the fast one loses digits that the other frameworks keep.
    return nnx.LayerNorm(width, epsilon=epsilon, use_fast_variance=False, rngs=rngs)
