"""attention: self-attention of m positions, k wide in heads of 64; no mask.

Queries, keys and values are [1, heads, m, head width]; a k below 64 is one head.
"""

import math
from typing import Any

from openxla.benchmark.def_types import DefinitionError
from openxla.benchmark.operators.definition import Argument, Operator


def heads_of(k: int) -> int:
    """Returns the number of heads of attention that is k wide.

    Raises:
      DefinitionError: k is not divisible by it.
    """
    heads = max(1, k // 64)
    if k % heads:
        raise DefinitionError(f"k = {k} is not divisible by the {heads} heads of attention")
    return heads


def _heads(m: int, k: int) -> Argument:
    return Argument(shape=(1, heads_of(k), m, k // heads_of(k)))


def _torch(query: Any, key: Any, value: Any) -> Any:
    import torch

    return torch.nn.functional.scaled_dot_product_attention(query, key, value)


def _jax(query: Any, key: Any, value: Any) -> Any:
    import jax
    import jax.numpy as jnp

    from openxla.benchmark.operators.precision import wide_jax

    scores = jnp.einsum("bhqd,bhkd->bhqk", wide_jax(query), wide_jax(key))
    weights = jax.nn.softmax(scores / math.sqrt(query.shape[-1]), axis=-1)
    return jnp.einsum("bhqk,bhkd->bhqd", weights, wide_jax(value)).astype(query.dtype)


def _tensorflow(query: Any, key: Any, value: Any) -> Any:
    import tensorflow as tf

    from openxla.benchmark.operators.precision import wide_tensorflow

    wide = [wide_tensorflow(part) for part in (query, key, value)]
    scores = tf.linalg.matmul(wide[0], wide[1], transpose_b=True)
    weights = tf.nn.softmax(scores / math.sqrt(query.shape[-1]), axis=-1)
    return tf.cast(tf.linalg.matmul(weights, wide[2]), query.dtype)


OPERATOR = Operator(
    name="attention",
    description="self-attention on [1, k/64, m, 64]",
    uses=("m", "k"),
    arguments=lambda m, k, n: [_heads(m, k)] * 3,
    results=lambda m, k, n: [_heads(m, k)],
    flops=lambda m, k, n: 4 * m * m * k,
    torch=_torch,
    jax=_jax,
    tensorflow=_tensorflow,
)
