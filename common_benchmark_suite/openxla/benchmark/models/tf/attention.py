"""Attention of whole sequences in TensorFlow."""

import math

import numpy as np
import tensorflow as tf

from openxla.benchmark.models.tf.layers import at_least_float32


def attention(
    query: tf.Tensor, key: tf.Tensor, value: tf.Tensor, *, heads: int, causal: bool = False
) -> tf.Tensor:
    """Multi-head attention; its softmax is at least float32.

    Args:
      query: [batch, queries, heads * head_size].
      key: [batch, keys, heads * head_size].
      value: as `key`.
      heads: number of heads.
      causal: whether a query sees only the keys up to its own place.

    Returns:
      [batch, queries, heads * head_size], of the type of the query.
    """
    length, size = query.shape[1], query.shape[2] // heads
    query, key, value = (split_heads(part, size) for part in (query, key, value))
    wide = at_least_float32(query.dtype)
    scores = tf.cast(tf.matmul(query, key, transpose_b=True), wide) * math.sqrt(1 / size)
    if causal:
        scores = tf.where(np.tri(length, dtype=np.bool_), scores, tf.constant(wide.min, wide))
    weights = tf.cast(tf.nn.softmax(scores), value.dtype)
    return merge_heads(tf.matmul(weights, value))


def split_heads(x: tf.Tensor, size: int) -> tf.Tensor:
    """[batch, seq, heads * size] -> [batch, heads, seq, size]."""
    batch, seq, width = x.shape
    return tf.transpose(tf.reshape(x, (batch, seq, width // size, size)), (0, 2, 1, 3))


def merge_heads(x: tf.Tensor) -> tf.Tensor:
    """[batch, heads, seq, size] -> [batch, seq, heads * size]."""
    batch, heads, seq, size = x.shape
    return tf.reshape(tf.transpose(x, (0, 2, 1, 3)), (batch, seq, heads * size))
