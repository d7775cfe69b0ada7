"""EfficientNet in JAX: our own flax.nnx modules on the shared checkpoint.

Convolutions run channels-last, the layout that XLA's CPU and GPU libraries prefer; the input
arrives channels-first, as the workload declares it, and is transposed once.
"""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from openxla.benchmark.models import shared_model
from openxla.benchmark.models.architectures import efficientnet
from openxla.benchmark.models.architectures.efficientnet import Block
from openxla.benchmark.models.jax import flax_model
from openxla.benchmark.models.jax.layers import BatchNorm, Conv, Linear


class ConvNorm(nnx.Module):
    """Convolution (depthwise if `groups` is the number of channels) and batch norm."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: int,
        epsilon: float,
        rngs: nnx.Rngs,
        *,
        stride: int = 1,
        padding: tuple[int, int] = (0, 0),
        groups: int = 1,
        activate: bool = True,
    ) -> None:
        self.conv = Conv(
            inputs,
            outputs,
            (kernel, kernel),
            strides=stride,
            padding=(padding, padding),
            feature_group_count=groups,
            use_bias=False,
            rngs=rngs,
        )
        self.norm = BatchNorm(outputs, epsilon, activate=activate)

    def __call__(self, x: jax.Array) -> jax.Array:
        """[batch, height, width, inputs] -> [batch, height', width', outputs]."""
        return self.norm(self.conv(x))


class SqueezeExcite(nnx.Module):
    """Scales each channel by a gate computed from all channel means (arXiv:1709.01507)."""

    def __init__(self, channels: int, squeezed: int, rngs: nnx.Rngs) -> None:
        self.reduce = Conv(channels, squeezed, (1, 1), rngs=rngs)
        self.expand = Conv(squeezed, channels, (1, 1), rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        """[batch, height, width, channels] -> the same."""
        mean = jnp.mean(x, axis=(1, 2), keepdims=True)
        return x * jax.nn.sigmoid(self.expand(jax.nn.silu(self.reduce(mean))))


class InvertedBottleneck(nnx.Module):
    """1x1 expansion, depthwise filter, squeeze-and-excitation, 1x1 projection, residual sum."""

    def __init__(self, block: Block, epsilon: float, rngs: nnx.Rngs) -> None:
        self.residual = block.residual
        self.expand = (
            nnx.data(ConvNorm(block.inputs, block.expanded, 1, epsilon, rngs))
            if block.expands
            else None
        )
        self.filter = ConvNorm(
            block.expanded,
            block.expanded,
            block.kernel,
            epsilon,
            rngs,
            stride=block.stride,
            padding=block.padding,
            groups=block.expanded,
        )
        self.excite = SqueezeExcite(block.expanded, block.squeezed, rngs)
        self.project = ConvNorm(block.expanded, block.outputs, 1, epsilon, rngs, activate=False)

    def __call__(self, x: jax.Array) -> jax.Array:
        """[batch, height, width, inputs] -> [batch, height', width', outputs]."""
        y = x if self.expand is None else self.expand(x)
        y = self.project(self.excite(self.filter(y)))
        return x + y if self.residual else y


class EfficientNet(nnx.Module):
    """Stem, inverted bottlenecks, top, mean, classifier."""

    def __init__(self, config: Mapping[str, Any], rngs: nnx.Rngs) -> None:
        epsilon = config["batch_norm_eps"]
        blocks = list(efficientnet.blocks(config))
        channels = efficientnet.rounded_width(config, 32)
        # Pads only at the end, at any size, as in transformers.
        self.stem = ConvNorm(
            config["num_channels"], channels, 3, epsilon, rngs, stride=2, padding=(0, 1)
        )
        self.blocks = nnx.List([InvertedBottleneck(block, epsilon, rngs) for block in blocks])
        self.top = ConvNorm(blocks[-1].outputs, config["hidden_dim"], 1, epsilon, rngs)
        self.classifier = Linear(config["hidden_dim"], len(config["id2label"]), rngs=rngs)

    def __call__(self, pixel_values: jax.Array) -> jax.Array:
        """Pixels [batch, 3, height, width] -> logits [batch, labels]."""
        x = self.stem(pixel_values.transpose(0, 2, 3, 1))
        for block in self.blocks:
            x = block(x)
        return self.classifier(jnp.mean(self.top(x), axis=(1, 2)))


create_model = flax_model.creator(efficientnet.ARCHITECTURE, EfficientNet)


if __name__ == "__main__":
    shared_model.run_once(create_model, **efficientnet.ARCHITECTURE.example)
