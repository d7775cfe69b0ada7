"""ResNet in TensorFlow: our own Keras layers on the shared checkpoint.

Convolutions run channels-last, the only layout that TensorFlow's CPU kernels have; the input
arrives channels-first, as the workload declares it, and is transposed once.
"""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from openxla.benchmark.models import shared_model
from openxla.benchmark.models.architectures import resnet
from openxla.benchmark.models.tf import keras_model
from openxla.benchmark.models.tf.layers import ConvNorm, Layer, Linear, mean_over_pixels

_EPSILON = 1e-5


def _conv_norm(inputs: int, outputs: int, kernel: int, stride: int) -> ConvNorm:
    around = kernel // 2
    return ConvNorm(
        inputs, outputs, kernel, _EPSILON, stride=stride, padding=(around, around), activate=False
    )


class Bottleneck(Layer):
    """1x1, 3x3 (with the stride, as in v1.5), 1x1, and a residual sum."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        inner = outputs // 4
        self.reduce = _conv_norm(inputs, inner, 1, 1)
        self.filter = _conv_norm(inner, inner, 3, stride)
        self.expand = _conv_norm(inner, outputs, 1, 1)
        self.shortcut = _conv_norm(inputs, outputs, 1, stride) if inputs != outputs else None

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """[batch, height, width, inputs] -> [batch, height', width', outputs]."""
        residual = x if self.shortcut is None else self.shortcut(x)
        y = tf.nn.relu(self.reduce(x))
        y = tf.nn.relu(self.filter(y))
        return tf.nn.relu(self.expand(y) + residual)


class ResNet(Layer):
    """Stem, bottlenecks, mean, classifier."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        self.stem = _conv_norm(config["num_channels"], config["embedding_size"], 7, 2)
        self.blocks = [
            Bottleneck(inputs, width, stride) for inputs, width, stride in resnet.blocks(config)
        ]
        self.classifier = Linear(config["hidden_sizes"][-1], len(config["id2label"]))

    def call(self, pixel_values: tf.Tensor) -> tf.Tensor:
        """Pixels [batch, 3, height, width] -> logits [batch, labels]."""
        x = tf.nn.relu(self.stem(tf.transpose(pixel_values, (0, 2, 3, 1))))
        # Padded separately: XLA has no explicit padding for this operation, but merges the two.
        x = tf.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)), constant_values=float("-inf"))
        x = tf.nn.max_pool2d(x, 3, 2, "VALID")
        for block in self.blocks:
            x = block(x)
        return self.classifier(mean_over_pixels(x))


create_model = keras_model.creator(resnet.ARCHITECTURE, ResNet)


if __name__ == "__main__":
    shared_model.run_once(create_model, **resnet.ARCHITECTURE.example)
