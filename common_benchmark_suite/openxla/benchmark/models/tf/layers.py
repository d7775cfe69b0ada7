"""Keras layers used by several of our models.

They use TensorFlow's operations: Keras' own layers compute some parts in float32 for any type,
which would cut the truth, a float64 run, to seven digits. See
docs/design/0008-tensorflow-models.md.

A layer makes its variables when it is constructed, with zeros that the checkpoint replaces.
"""

import math
from typing import Any

import keras
import tensorflow as tf

from openxla.benchmark.models.tf.products import at_least_float32, conv2d, matmul


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
            inputs,
            outputs,
            kernel,
            stride=stride,
            padding=padding,
            depthwise=depthwise,
            bias=False,
        )
        self.norm = BatchNorm(outputs, epsilon, activate=activate)

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """[batch, height, width, inputs] -> [batch, height', width', outputs]."""
        return self.norm(self.conv(x))


class SelfAttention(Layer):
    """Multi-head attention of a sequence to itself; layers `query`, `key`, `value` and `output_`.

    Softmax is in float32 at least.
    """

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = Linear(hidden, hidden)
        self.key = Linear(hidden, hidden)
        self.value = Linear(hidden, hidden)
        self.output_ = Linear(hidden, hidden)

    def call(self, x: tf.Tensor, bias: tf.Tensor | None = None) -> tf.Tensor:
        """[batch, seq, hidden], and [batch, 1, 1, seq] to add to the scores, -> as x.

        The bias is of the type of the softmax.
        """
        batch, seq, hidden = x.shape
        head_size = hidden // self.heads
        query, key, value = (
            tf.transpose(tf.reshape(part(x), (batch, seq, self.heads, head_size)), (0, 2, 1, 3))
            for part in (self.query, self.key, self.value)
        )
        wide = at_least_float32(x.dtype)
        scores = tf.cast(matmul(query, key, transpose_b=True), wide) * math.sqrt(1 / head_size)
        weights = tf.nn.softmax(scores if bias is None else scores + bias)
        context = matmul(tf.cast(weights, x.dtype), value)
        merged = tf.reshape(tf.transpose(context, (0, 2, 1, 3)), (batch, seq, hidden))
        return self.output_(merged)


def mean_over_pixels(x: tf.Tensor, *, keepdims: bool = False) -> tf.Tensor:
    """Returns the mean over height and width of [batch, height, width, channels].

    The sum is at least float32: a 16-bit sum over a picture would lose most of its digits.
    """
    wide = tf.cast(x, at_least_float32(x.dtype))
    return tf.cast(tf.reduce_mean(wide, axis=(1, 2), keepdims=keepdims), x.dtype)
