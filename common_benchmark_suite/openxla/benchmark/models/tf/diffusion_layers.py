"""Layers of latent diffusion networks in TensorFlow; pictures are channels-last."""

import tensorflow as tf

from openxla.benchmark.models.tf.layers import Conv, Layer, Linear
from openxla.benchmark.models.tf.products import at_least_float32


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
