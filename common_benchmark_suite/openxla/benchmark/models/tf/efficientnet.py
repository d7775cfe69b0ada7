"""EfficientNet in TensorFlow: our own Keras layers on the shared checkpoint.

Convolutions run channels-last, the only layout that TensorFlow's CPU kernels have; the input
arrives channels-first, as the workload declares it, and is transposed once.
"""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from openxla.benchmark.models import shared_model
from openxla.benchmark.models.architectures import efficientnet
from openxla.benchmark.models.architectures.efficientnet import Block
from openxla.benchmark.models.tf import keras_model
from openxla.benchmark.models.tf.layers import Conv, ConvNorm, Layer, Linear, mean_over_pixels


class SqueezeExcite(Layer):
    """Scales each channel by a gate computed from all channel means (arXiv:1709.01507)."""

    def __init__(self, channels: int, squeezed: int) -> None:
        super().__init__()
        self.reduce = Conv(channels, squeezed, 1)
        self.expand = Conv(squeezed, channels, 1)

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """[batch, height, width, channels] -> the same."""
        mean = mean_over_pixels(x, keepdims=True)
        return x * tf.sigmoid(self.expand(tf.nn.silu(self.reduce(mean))))


class InvertedBottleneck(Layer):
    """1x1 expansion, depthwise filter, squeeze-and-excitation, 1x1 projection, residual sum."""

    def __init__(self, block: Block, epsilon: float) -> None:
        super().__init__()
        self.residual = block.residual
        self.expand = ConvNorm(block.inputs, block.expanded, 1, epsilon) if block.expands else None
        self.filter = ConvNorm(
            block.expanded,
            block.expanded,
            block.kernel,
            epsilon,
            stride=block.stride,
            padding=block.padding,
            depthwise=True,
        )
        self.excite = SqueezeExcite(block.expanded, block.squeezed)
        self.project = ConvNorm(block.expanded, block.outputs, 1, epsilon, activate=False)

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """[batch, height, width, inputs] -> [batch, height', width', outputs]."""
        y = x if self.expand is None else self.expand(x)
        y = self.project(self.excite(self.filter(y)))
        return x + y if self.residual else y


class EfficientNet(Layer):
    """Stem, inverted bottlenecks, top, mean, classifier."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        epsilon = config["batch_norm_eps"]
        blocks = list(efficientnet.blocks(config))
        channels = efficientnet.rounded_width(config, 32)
        # Pads only at the end, at any size, as in transformers.
        self.stem = ConvNorm(config["num_channels"], channels, 3, epsilon, stride=2, padding=(0, 1))
        self.blocks = [InvertedBottleneck(block, epsilon) for block in blocks]
        self.top = ConvNorm(blocks[-1].outputs, config["hidden_dim"], 1, epsilon)
        self.classifier = Linear(config["hidden_dim"], len(config["id2label"]))

    def call(self, pixel_values: tf.Tensor) -> tf.Tensor:
        """Pixels [batch, 3, height, width] -> logits [batch, labels]."""
        x = self.stem(tf.transpose(pixel_values, (0, 2, 3, 1)))
        for block in self.blocks:
            x = block(x)
        return self.classifier(mean_over_pixels(self.top(x)))


create_model = keras_model.creator(efficientnet.ARCHITECTURE, EfficientNet)


if __name__ == "__main__":
    shared_model.run_once(create_model, **efficientnet.ARCHITECTURE.example)
