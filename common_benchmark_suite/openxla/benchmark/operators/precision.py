"""Casts to at least 32 bits, as PyTorch does for sums, norms and exponentials."""

from typing import Any


def wide_jax(x: Any) -> Any:
    """Returns a JAX array in fp32, or in its own type if wider."""
    import jax.numpy as jnp

    return x.astype(jnp.promote_types(x.dtype, jnp.float32))


def wide_tensorflow(x: Any) -> Any:
    """Returns a TensorFlow tensor in fp32, or in its own type if wider."""
    import tensorflow as tf

    return x if x.dtype == tf.float64 else tf.cast(x, tf.float32)


def standardized_jax(x: Any, epsilon: float) -> Any:
    """Returns (x - mean) / deviation over the last axis of an array, in at least fp32."""
    import jax

    wide = wide_jax(x)
    centred = wide - wide.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt((centred * centred).mean(-1, keepdims=True) + epsilon)


def standardized_tensorflow(x: Any, epsilon: float) -> Any:
    """Returns (x - mean) / deviation over the last axis of a tensor, in at least fp32."""
    import tensorflow as tf

    wide = wide_tensorflow(x)
    centred = wide - tf.reduce_mean(wide, -1, keepdims=True)
    variance = tf.reduce_mean(centred * centred, -1, keepdims=True)
    return centred * tf.math.rsqrt(variance + epsilon)


def linear_jax(x: Any, weight: Any) -> Any:
    """Returns [..., k] times a matrix [n, k], in the type of both.

    It uses the primitive, because Qwix does not find products inside the function behind `@`.
    """
    import jax

    return jax.lax.dot_general(x, weight, (((x.ndim - 1,), (1,)), ((), ())))
