"""Layers of latent diffusion networks in JAX; pictures are channels-last."""

import jax
import jax.numpy as jnp
from flax import nnx

from openxla.benchmark.models.jax.layers import Conv, Linear


def group_norm(channels: int, groups: int, epsilon: float, rngs: nnx.Rngs) -> nnx.GroupNorm:
    """Returns a group norm (Wu and He 2018, arXiv:1803.08494)."""
    # Two-pass variance: the fast one loses digits that the other frameworks keep.
    return nnx.GroupNorm(
        channels, num_groups=groups, epsilon=epsilon, use_fast_variance=False, rngs=rngs
    )


def conv(inputs: int, outputs: int, kernel: int, rngs: nnx.Rngs, *, stride: int = 1) -> Conv:
    """Returns a square convolution with explicit symmetric padding, as in torch."""
    # "SAME" would shift strided windows by one pixel.
    return Conv(inputs, outputs, (kernel, kernel), strides=stride, padding=kernel // 2, rngs=rngs)


class ResnetBlock(nnx.Module):
    """Norm, SiLU and convolution, twice, with the timestep added between, and a residual sum."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        *,
        groups: int,
        epsilon: float,
        rngs: nnx.Rngs,
        time_width: int | None = None,
    ) -> None:
        self.norm1 = group_norm(inputs, groups, epsilon, rngs)
        self.conv1 = conv(inputs, outputs, 3, rngs)
        self.time = None if time_width is None else nnx.data(Linear(time_width, outputs, rngs=rngs))
        self.norm2 = group_norm(outputs, groups, epsilon, rngs)
        self.conv2 = conv(outputs, outputs, 3, rngs)
        self.shortcut = nnx.data(conv(inputs, outputs, 1, rngs)) if inputs != outputs else None

    def __call__(self, x: jax.Array, time: jax.Array | None = None) -> jax.Array:
        """[batch, height, width, inputs], time [batch, time_width] -> [..., outputs]."""
        residual = x if self.shortcut is None else self.shortcut(x)
        y = self.conv1(jax.nn.silu(self.norm1(x)))
        if self.time is not None:
            y = y + self.time(jax.nn.silu(time))[:, None, None, :]
        return residual + self.conv2(jax.nn.silu(self.norm2(y)))


def upsample(x: jax.Array) -> jax.Array:
    """Repeats each pixel, [batch, height, width, channels] -> [batch, 2 height, 2 width, ...]."""
    batch, height, width, channels = x.shape
    # A broadcast can be fused into the next convolution; an image resize would gather.
    repeated = jnp.broadcast_to(x[:, :, None, :, None, :], (batch, height, 2, width, 2, channels))
    return repeated.reshape(batch, 2 * height, 2 * width, channels)
