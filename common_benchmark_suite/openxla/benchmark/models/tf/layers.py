"""Keras layers used by several of our models, of transformers and of diffusion networks.

They use TensorFlow's operations: Keras' own layers compute some parts in float32 for any type,
which would cut the truth, a float64 run, to seven digits. See
docs/design/0008-tensorflow-models.md. A layer makes its variables when it is constructed, with
zeros that the checkpoint replaces. Pictures are channels-last.
"""

import math
from collections.abc import Collection
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from openxla.benchmark.models.tf.operations import at_least_float32, conv2d, matmul


class Layer(keras.layers.Layer):
    """A Keras layer that is built when constructed, and casts no input.

    In TensorFlow a sum of two types is an error, so a part of a model cannot have another type
    unnoticed. (Keras reserves the names `dtype`, `input`, `output`, `path`, `losses`, `metrics`,
    `variables` and `weights`, so our attribute is `output_`.)
    """

    def __init__(self) -> None:
        super().__init__(autocast=False)
        self.built = True

    def weight(self, *shape: int) -> Any:
        """Returns a new variable of the layer's type."""
        return self.add_weight(shape=shape, initializer="zeros")


class Linear(Layer):
    """Matrix product, plus a vector if `bias`; variables `kernel` and `bias`."""

    def __init__(self, inputs: int, outputs: int, *, bias: bool = True) -> None:
        super().__init__()
        self.kernel = self.weight(inputs, outputs)
        self.bias = self.weight(outputs) if bias else None

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """[..., inputs] -> [..., outputs]."""
        # As one matrix product; leading dimensions would make it a batch of small ones.
        y = matmul(tf.reshape(x, (-1, x.shape[-1])), self.kernel)
        if self.bias is not None:
            y = tf.nn.bias_add(y, self.bias)  # the form that TensorFlow fuses with the product
        return tf.reshape(y, (*x.shape[:-1], self.kernel.shape[-1]))


class LayerNorm(Layer):
    """Layer norm (arXiv:1607.06450), in float32 at least; variables `scale` and `bias`."""

    def __init__(self, size: int, epsilon: float) -> None:
        super().__init__()
        self.epsilon = epsilon
        self.scale = self.weight(size)
        self.bias = self.weight(size)

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """[..., size] -> the same."""
        wide = at_least_float32(x.dtype)
        y = tf.cast(x, wide)
        y -= tf.reduce_mean(y, axis=-1, keepdims=True)
        variance = tf.reduce_mean(tf.square(y), axis=-1, keepdims=True)
        scale, bias = tf.cast(self.scale, wide), tf.cast(self.bias, wide)
        return tf.cast(y * (tf.math.rsqrt(variance + self.epsilon) * scale) + bias, x.dtype)


class BatchNorm(Layer):
    """Batch norm with running statistics, then swish if `activate`.

    Computed in at least float32 and rounded once, as in PyTorch's libraries. Variables: `scale`,
    `bias`, `mean` and `var`.
    """

    def __init__(self, channels: int, epsilon: float, *, activate: bool = False) -> None:
        super().__init__()
        self.epsilon, self.activate = epsilon, activate
        self.scale = self.weight(channels)
        self.bias = self.weight(channels)
        self.mean = self.weight(channels)
        self.var = self.weight(channels)

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """[..., channels] -> the same."""
        wide = at_least_float32(x.dtype)
        mean, var, bias, scale = (
            tf.cast(part, wide) for part in (self.mean, self.var, self.bias, self.scale)
        )
        y = tf.nn.batch_normalization(tf.cast(x, wide), mean, var, bias, scale, self.epsilon)
        return tf.cast(tf.nn.silu(y) if self.activate else y, x.dtype)


class Conv(Layer):
    """Two-dimensional convolution, channels last.

    Variables: `kernel` or `depthwise_kernel` and, if `bias`, `bias`.

    Padding is explicit: "SAME" would shift strided windows by one pixel.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: int,
        *,
        stride: int = 1,
        padding: tuple[int, int] = (0, 0),
        depthwise: bool = False,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.stride, self.padding, self.depthwise = stride, padding, depthwise
        if depthwise:
            self.depthwise_kernel = self.weight(kernel, kernel, inputs, 1)
        else:
            self.kernel = self.weight(kernel, kernel, inputs, outputs)
        self.bias = self.weight(outputs) if bias else None

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """[batch, height, width, inputs] -> [batch, height', width', outputs]."""
        padding, strides = (self.padding, self.padding), (self.stride, self.stride)
        if self.depthwise:
            around = ((0, 0), *padding, (0, 0)) if any(self.padding) else "VALID"
            y = tf.nn.depthwise_conv2d(x, self.depthwise_kernel, (1, *strides, 1), around)
        else:
            y = conv2d(x, self.kernel, strides, padding)
        return y if self.bias is None else tf.nn.bias_add(y, self.bias)


class ConvNorm(Layer):
    """Convolution, batch norm, and swish if `activate`."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: int,
        epsilon: float,
        *,
        stride: int = 1,
        padding: tuple[int, int] = (0, 0),
        depthwise: bool = False,
        activate: bool = True,
    ) -> None:
        super().__init__()
        self.conv = Conv(
            inputs, outputs, kernel, stride=stride, padding=padding, depthwise=depthwise, bias=False
        )
        self.norm = BatchNorm(outputs, epsilon, activate=activate)

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """[batch, height, width, inputs] -> [batch, height', width', outputs]."""
        return self.norm(self.conv(x))


def mean_over_pixels(x: tf.Tensor, *, keepdims: bool = False) -> tf.Tensor:
    """Returns the mean over height and width of [batch, height, width, channels].

    The sum is at least float32: a 16-bit sum over a picture would lose most of its digits.
    """
    wide = tf.cast(x, at_least_float32(x.dtype))
    return tf.cast(tf.reduce_mean(wide, axis=(1, 2), keepdims=keepdims), x.dtype)


def attention(
    query: tf.Tensor,
    key: tf.Tensor,
    value: tf.Tensor,
    *,
    heads: int,
    causal: bool = False,
    bias: tf.Tensor | None = None,
) -> tf.Tensor:
    """Multi-head attention; its softmax is at least float32.

    Args:
      query: [batch, queries, heads * head_size].
      key: [batch, keys, heads * head_size].
      value: [batch, keys, heads * head_size].
      heads: number of heads.
      causal: whether a query only attends to keys up to its own position.
      bias: [batch, 1, 1, keys] to add to the scores, of the type of the softmax.

    Returns:
      [batch, queries, heads * head_size], of the type of the query.
    """
    length, size = query.shape[1], query.shape[2] // heads
    query, key, value = (split_heads(part, size) for part in (query, key, value))
    wide = at_least_float32(query.dtype)
    scores = tf.cast(matmul(query, key, transpose_b=True), wide) * math.sqrt(1 / size)
    if causal:
        scores = tf.where(np.tri(length, dtype=np.bool_), scores, tf.constant(wide.min, wide))
    weights = tf.cast(tf.nn.softmax(scores if bias is None else scores + bias), value.dtype)
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

    def call(
        self,
        x: tf.Tensor,
        context: tf.Tensor,
        bias: tf.Tensor | None = None,
        *,
        causal: bool = False,
    ) -> tf.Tensor:
        """[batch, queries, width], [batch, keys, context_width] -> [batch, queries, width].

        `attention` describes `bias` and `causal`.
        """
        query, key, value = self.query(x), self.key(context), self.value(context)
        y = attention(query, key, value, heads=self.heads, bias=bias, causal=causal)
        return self.output_(y)


def split_heads(x: tf.Tensor, size: int) -> tf.Tensor:
    """[batch, seq, heads * size] -> [batch, heads, seq, size]."""
    batch, seq, width = x.shape
    return tf.transpose(tf.reshape(x, (batch, seq, width // size, size)), (0, 2, 1, 3))


def merge_heads(x: tf.Tensor) -> tf.Tensor:
    """[batch, heads, seq, size] -> [batch, seq, heads * size]."""
    batch, heads, seq, size = x.shape
    return tf.reshape(tf.transpose(x, (0, 2, 1, 3)), (batch, seq, heads * size))


class GroupNorm(Layer):
    """Group norm (Wu and He 2018, arXiv:1803.08494), in float32 at least.

    Variables: `scale` and `bias`.
    """

    def __init__(self, channels: int, groups: int, epsilon: float) -> None:
        super().__init__()
        self.groups, self.epsilon = groups, epsilon
        self.scale = self.weight(channels)
        self.bias = self.weight(channels)

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """[batch, height, width, channels], same shape out."""
        batch, height, width, channels = x.shape
        wide = at_least_float32(x.dtype)
        grouped = (batch, height * width, self.groups, channels // self.groups)
        y = tf.cast(tf.reshape(x, grouped), wide)
        mean, variance = tf.nn.moments(y, (1, 3), keepdims=True)
        # One product and one sum per number, as in PyTorch, because graphs do not fuse them.
        factor = tf.math.rsqrt(variance + self.epsilon)
        factor *= tf.reshape(tf.cast(self.scale, wide), grouped[2:])
        shift = tf.reshape(tf.cast(self.bias, wide), grouped[2:]) - mean * factor
        return tf.cast(tf.reshape(y * factor + shift, x.shape), x.dtype)


def conv(inputs: int, outputs: int, kernel: int, *, stride: int = 1) -> Conv:
    """Returns a square convolution with symmetric padding, as torch has it."""
    around = kernel // 2
    return Conv(inputs, outputs, kernel, stride=stride, padding=(around, around))


class ResnetBlock(Layer):
    """Norm, SiLU and convolution, twice, with the timestep added between, and a residual sum."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        *,
        groups: int,
        epsilon: float,
        time_width: int | None = None,
    ) -> None:
        super().__init__()
        self.norm1 = GroupNorm(inputs, groups, epsilon)
        self.conv1 = conv(inputs, outputs, 3)
        self.time = None if time_width is None else Linear(time_width, outputs)
        self.norm2 = GroupNorm(outputs, groups, epsilon)
        self.conv2 = conv(outputs, outputs, 3)
        self.shortcut = conv(inputs, outputs, 1) if inputs != outputs else None

    def call(self, x: tf.Tensor, time: tf.Tensor | None = None) -> tf.Tensor:
        """[batch, height, width, inputs], time [batch, time_width] -> [..., outputs]."""
        residual = x if self.shortcut is None else self.shortcut(x)
        y = self.conv1(tf.nn.silu(self.norm1(x)))
        if self.time is not None:
            y += self.time(tf.nn.silu(time))[:, tf.newaxis, tf.newaxis, :]
        return residual + self.conv2(tf.nn.silu(self.norm2(y)))


def upsample(x: tf.Tensor) -> tf.Tensor:
    """Repeats each pixel, [batch, height, width, channels] -> [batch, 2 height, 2 width, ...]."""
    batch, height, width, channels = x.shape
    # A broadcast can be fused into the next convolution; an image resize would gather.
    spread = x[:, :, tf.newaxis, :, tf.newaxis, :]
    repeated = tf.broadcast_to(spread, (batch, height, 2, width, 2, channels))
    return tf.reshape(repeated, (batch, 2 * height, 2 * width, channels))


def to_channels_last(x: tf.Tensor) -> tf.Tensor:
    """[batch, channels, height, width] -> [batch, height, width, channels]."""
    return tf.transpose(x, (0, 2, 3, 1))


def to_channels_first(x: tf.Tensor) -> tf.Tensor:
    """[batch, height, width, channels] -> [batch, channels, height, width]."""
    return tf.transpose(x, (0, 3, 1, 2))
