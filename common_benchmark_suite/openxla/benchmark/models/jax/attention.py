"""Attention in JAX, for models whose truth is a float64 run.

`jax.nn.dot_product_attention` is the same but for its softmax, which is always in float32: the
float64 run would lose nine digits by it.
"""

import jax
import jax.numpy as jnp
import numpy as np


def attention(
    query: jax.Array, key: jax.Array, value: jax.Array, *, heads: int, causal: bool = False
) -> jax.Array:
    """Multi-head attention; scores and softmax are at least float32.

    Args:
      query: [batch, queries, heads * head_size].
      key: [batch, keys, heads * head_size].
      value: as `key`.
      heads: number of heads.
      causal: whether a query sees only the keys up to its own place.

    Returns:
      [batch, queries, heads * head_size], of the type of the query.
    """
    batch, length, width = query.shape
    head_size = width // heads
    # Heads in front: left behind the positions, XLA's products for CPUs take longer, Whisper by a
    # fifth.
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
    context = jnp.einsum("bhqk,bhkd->bhqd", weights, value)
    return context.swapaxes(1, 2).reshape(batch, length, width)
