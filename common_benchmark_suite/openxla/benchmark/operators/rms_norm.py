"""rms_norm over the last axis of [m, k], with a scale; epsilon 1e-6, sums in fp32."""

from typing import Any

from openxla.benchmark.operators.definition import Argument, Operator

EPSILON = 1e-6


def _torch(x: Any, scale: Any) -> Any:
    import torch

    return torch.nn.functional.rms_norm(x, x.shape[-1:], scale, EPSILON)


def _jax(x: Any, scale: Any) -> Any:
    import jax

    from openxla.benchmark.operators.precision import wide_jax

    wide = wide_jax(x)
    mean = (wide * wide).mean(-1, keepdims=True)
    return (wide * jax.lax.rsqrt(mean + EPSILON) * wide_jax(scale)).astype(x.dtype)


def _tensorflow(x: Any, scale: Any) -> Any:
    import tensorflow as tf

    from openxla.benchmark.operators.precision import wide_tensorflow

    wide = wide_tensorflow(x)
    mean = tf.reduce_mean(wide * wide, -1, keepdims=True)
    return tf.cast(wide * tf.math.rsqrt(mean + EPSILON) * wide_tensorflow(scale), x.dtype)


OPERATOR = Operator(
    name="rms_norm",
    description="over the last axis of [m, k], scale [k]",
    uses=("m", "k"),
    arguments=lambda m, k, n: [Argument(shape=(m, k)), Argument(shape=(k,))],
    results=lambda m, k, n: [Argument(shape=(m, k))],
    torch=_torch,
    jax=_jax,
    tensorflow=_tensorflow,
)
