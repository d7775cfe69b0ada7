"""Attention of whole sequences in TensorFlow."""

import math
from collections.abc import Collection

import numpy as np
import tensorflow as tf

from openxla.benchmark.models.tf.layers import Layer, Linear
from openxla.benchmark.models.tf.products import at_least_float32, matmul


def attention(
    query: tf.Tensor, key: tf.Tensor, value: tf.Tensor, *, heads: int, causal: bool = False
) -> tf.Tensor:
    """Multi-head attention; its softmax is at least float32.

    Args:
      query: [batch, queries, heads * head_size].
      key: [batch, keys, heads * head_size].
      value: [batch, keys, heads * head_size].
      heads: number of heads.
      causal: whether a query only attends to keys up to its own position.

    Returns:
      [batch, queries, heads * head_size], of the type of the query.
    """
    length, size = query.shape[1], query.shape[2] // heads
    query, key, value = (split_heads(part, size) for part in (query, key, value))
    wide = at_least_float32(query.dtype)
    scores = tf.cast(matmul(query, key, transpose_b=True), wide) * math.sqrt(1 / size)
    if causal:
        scores = tf.where(np.tri(length, dtype=np.bool_), scores, tf.constant(wide.min, wide))
    weights = tf.cast(tf.nn.softmax(scores), value.dtype)
    return merge_heads(matmul(weights, value))


class MultiHeadAttention(Layer):
    """Multi-head attention of a sequence to itself or to another.

    Args:
      width: width of queries and outputs.
      heads: number of heads.
      context_width: width of the other sequence; `width` unless given.
      biases: which of query, key and value have one; the output always does.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        context_width: int | None = None,
        biases: Collection[str] = ("query", "key", "value"),
    ) -> None:
        super().__init__()
        context_width = context_width or width
        self.heads = heads
        self.query = Linear(width, width, bias="query" in biases)
        self.key = Linear(context_width, width, bias="key" in biases)
        self.value = Linear(context_width, width, bias="value" in biases)
        self.output_ = Linear(width, width)

    def call(self, x: tf.Tensor, context: tf.Tensor, *, causal: bool = False) -> tf.Tensor:
        """[batch, queries, width], [batch, keys, context_width] -> [batch, queries, width]."""
        query, key, value = self.query(x), self.key(context), self.value(context)
        return self.output_(attention(query, key, value, heads=self.heads, causal=causal))


def split_heads(x: tf.Tensor, size: int) -> tf.Tensor:
    """[batch, seq, heads * size] -> [batch, heads, seq, size]."""
    batch, seq, width = x.shape
    return tf.transpose(tf.reshape(x, (batch, seq, width // size, size)), (0, 2, 1, 3))


def merge_heads(x: tf.Tensor) -> tf.Tensor:
    """[batch, heads, seq, size] -> [batch, seq, heads * size]."""
    batch, heads, seq, size = x.shape
    return tf.reshape(tf.transpose(x, (0, 2, 1, 3)), (batch, seq, heads * size))
