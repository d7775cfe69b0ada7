"""quantize: [m, k] to int8 with a fixed scale of 1/32, rounding half to even.

The scale is a power of two, so the product is exact and every framework rounds the same.
"""

from typing import Any

from openxla.benchmark.operators.definition import Argument, Operator

STEPS, LOWEST, HIGHEST = 32.0, -128.0, 127.0


def _torch(x: Any) -> Any:
    import torch

    return torch.round(x * STEPS).clamp(LOWEST, HIGHEST).to(torch.int8)


def _jax(x: Any) -> Any:
    import jax.numpy as jnp

    return jnp.clip(jnp.round(x * STEPS), LOWEST, HIGHEST).astype(jnp.int8)


def _tensorflow(x: Any) -> Any:
    import tensorflow as tf

    return tf.cast(tf.clip_by_value(tf.round(x * STEPS), LOWEST, HIGHEST), tf.int8)


OPERATOR = Operator(
    name="quantize",
    description="[m, k] to int8, scale 1/32",
    uses=("m", "k"),
    arguments=lambda m, k, n: [Argument(shape=(m, k))],
    results=lambda m, k, n: [Argument(shape=(m, k), dtype="i8")],
    torch=_torch,
    jax=_jax,
    tensorflow=_tensorflow,
)
