"""conv2d: a 3 by 3 convolution of a picture with k channels to n channels.

The picture is the largest square of at most m pixels, channels first. TensorFlow transposes it,
like models there, because its CPU kernels only support channels last.
"""

import math
from typing import Any

from openxla.benchmark.operators.definition import Argument, Operator


def _picture(m: int, channels: int) -> Argument:
    side = math.isqrt(m)
    return Argument(shape=(1, channels, side, side))


def _torch(x: Any, w: Any) -> Any:
    import torch

    return torch.nn.functional.conv2d(x, w, padding=1)


def _jax(x: Any, w: Any) -> Any:
    import jax

    return jax.lax.conv_general_dilated(x, w, (1, 1), "SAME")


def _tensorflow(x: Any, w: Any) -> Any:
    import tensorflow as tf

    y = tf.nn.conv2d(tf.transpose(x, (0, 2, 3, 1)), tf.transpose(w, (2, 3, 1, 0)), 1, "SAME")
    return tf.transpose(y, (0, 3, 1, 2))


OPERATOR = Operator(
    name="conv2d",
    description="[1, k, √m, √m] by [n, k, 3, 3], padded",
    uses=("m", "k", "n"),
    arguments=lambda m, k, n: [_picture(m, k), Argument(shape=(n, k, 3, 3))],
    results=lambda m, k, n: [_picture(m, n)],
    flops=lambda m, k, n: 18 * math.isqrt(m) ** 2 * k * n,
    torch=_torch,
    jax=_jax,
    tensorflow=_tensorflow,
)
