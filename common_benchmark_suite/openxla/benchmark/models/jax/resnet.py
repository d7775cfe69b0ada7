"""ResNet in JAX: our own flax.nnx modules on the shared checkpoint.

Convolutions run channels-last, the layout that XLA's CPU and GPU libraries prefer; the input
arrives channels-first, as the workload declares it, and is transposed once.
"""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from openxla.benchmark.models import shared_model
from openxla.benchmark.models.architectures import resnet
from openxla.benchmark.models.jax import flax_model
from openxla.benchmark.models.jax.layers import BatchNorm, Linear, conv


class ConvNorm(nnx.Module):
    """Convolution and batch norm with running statistics."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, rngs: nnx.Rngs) -> None:
        self.conv = conv(inputs, outputs, kernel, rngs, strides=stride, use_bias=False)
        self.norm = BatchNorm(outputs, 1e-5)

    def __call__(self, x: jax.Array) -> jax.Array:
        """[batch, height, width, inputs] -> [batch, height', width', outputs]."""
        return self.norm(self.conv(x))


class Bottleneck(nnx.Module):
    """1x1, 3x3 (with the stride, as in v1.5), 1x1, and a residual sum."""

    def __init__(self, inputs: int, outputs: int, stride: int, rngs: nnx.Rngs) -> None:
        inner = outputs // 4
        self.reduce = ConvNorm(inputs, inner, 1, 1, rngs)
        self.filter = ConvNorm(inner, inner, 3, stride, rngs)
        self.expand = ConvNorm(inner, outputs, 1, 1, rngs)
        self.shortcut = (
            nnx.data(ConvNorm(inputs, outputs, 1, stride, rngs)) if inputs != outputs else None
        )

    def __call__(self, x: jax.Array) -> jax.Array:
        """[batch, height, width, inputs] -> [batch, height', width', outputs]."""
        residual = x if self.shortcut is None else self.shortcut(x)
        y = jax.nn.relu(self.reduce(x))
        y = jax.nn.relu(self.filter(y))
        return jax.nn.relu(self.expand(y) + residual)


class ResNet(nnx.Module):
    """Stem, bottlenecks, mean, classifier."""

    def __init__(self, config: Mapping[str, Any], rngs: nnx.Rngs) -> None:
        self.stem = ConvNorm(config["num_channels"], config["embedding_size"], 7, 2, rngs)
        self.blocks = nnx.List(
            [
                Bottleneck(inputs, width, stride, rngs)
                for inputs, width, stride in resnet.blocks(config)
            ]
        )
        labels = len(config["id2label"])
        self.classifier = Linear(config["hidden_sizes"][-1], labels, rngs=rngs)

    def __call__(self, pixel_values: jax.Array) -> jax.Array:
        """Pixels [batch, 3, height, width] -> logits [batch, labels]."""
        x = jax.nn.relu(self.stem(pixel_values.transpose(0, 2, 3, 1)))
        x = nnx.max_pool(x, (3, 3), strides=(2, 2), padding=((1, 1), (1, 1)))
        for block in self.blocks:
            x = block(x)
        return self.classifier(jnp.mean(x, axis=(1, 2)))


create_model = flax_model.creator(resnet.ARCHITECTURE, ResNet)


if __name__ == "__main__":
    shared_model.run_once(create_model, **resnet.ARCHITECTURE.example)
