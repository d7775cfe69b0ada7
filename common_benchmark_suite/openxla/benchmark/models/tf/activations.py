"""GELU in TensorFlow, for models whose truth is a float64 run.

`tf.nn.gelu` is the same, except that it rounds its constants to float32 in any type, which would
cost the float64 run eight digits.
"""

import math

import tensorflow as tf

from openxla.benchmark.models.tf.products import at_least_float32


def gelu(x: tf.Tensor) -> tf.Tensor:
    """GELU (Hendrycks and Gimpel 2016, arXiv:1606.08415), in at least float32."""
    wide = tf.cast(x, at_least_float32(x.dtype))
    # TensorFlow's TFLite converter recognises GELU by this order of factors.
    return tf.cast(0.5 * wide * tf.math.erfc(-wide * math.sqrt(0.5)), x.dtype)


def gelu_tanh(x: tf.Tensor) -> tf.Tensor:
    """The tanh approximation of GELU, from the same paper."""
    wide = tf.cast(x, at_least_float32(x.dtype))
    inner = math.sqrt(2 / math.pi) * (wide + 0.044715 * wide * wide * wide)
    return tf.cast(0.5 * wide * (1.0 + tf.tanh(inner)), x.dtype)
