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

    # As in PyTorch, products take the inputs' type and are summed in at least fp32.
    wide = jnp.promote_types(query.dtype, jnp.float32)
    scores = jnp.einsum("bhqd,bhkd->bhqk", query, key, preferred_element_type=wide)
    weights = jax.nn.softmax(scores / math.sqrt(query.shape[-1]), axis=-1).astype(value.dtype)
    y = jnp.einsum("bhqk,bhkd->bhqd", weights, value, preferred_element_type=wide)
    return y.astype(query.dtype)


def _tensorflow(query: Any, key: Any, value: Any) -> Any:
    import tensorflow as tf

    from openxla.benchmark.models.tf.operations import matmul
    from openxla.benchmark.operators.precision import wide_tensorflow

    scores = wide_tensorflow(matmul(query, key, transpose_b=True))
    weights = tf.nn.softmax(scores / math.sqrt(query.shape[-1]), axis=-1)
    return matmul(tf.cast(weights, value.dtype), value)


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
