"""conv_block: `conv2d` of a picture, batch norm with stored statistics, relu."""

from typing import Any

from openxla.benchmark.models.architectures.base import TensorInit
from openxla.benchmark.operators.conv2d import OPERATOR as CONV
from openxla.benchmark.operators.definition import Layer

EPSILON = 1e-5
# The names that torch gives to a convolution and the norm after it.
_NORM = ("1.weight", "1.bias", "1.running_mean", "1.running_var")


def _torch(m: int, k: int, n: int) -> Any:
    import torch

    return torch.nn.Sequential(
        torch.nn.Conv2d(k, n, 3, padding=1, bias=False),
        torch.nn.BatchNorm2d(n, eps=EPSILON),
        torch.nn.ReLU(),
    )


def _jax(weights: Any, x: Any) -> Any:
    import jax

    from openxla.benchmark.operators.precision import wide_jax

    y = wide_jax(CONV.jax(x, weights["0.weight"]))
    scale, bias, mean, variance = (wide_jax(weights[name])[:, None, None] for name in _NORM)
    y = (y - mean) * (scale * jax.lax.rsqrt(variance + EPSILON)) + bias
    return jax.nn.relu(y).astype(x.dtype)


def _tensorflow(weights: Any, x: Any) -> Any:
    import tensorflow as tf

    from openxla.benchmark.operators.precision import wide_tensorflow

    y = wide_tensorflow(CONV.tensorflow(x, weights["0.weight"]))
    scale, bias, mean, variance = (wide_tensorflow(weights[name])[:, None, None] for name in _NORM)
    y = (y - mean) * (scale * tf.math.rsqrt(variance + EPSILON)) + bias
    return tf.cast(tf.nn.relu(y), x.dtype)


OPERATOR = Layer(
    name="conv_block",
    description="[1, k, √m, √m] by [n, k, 3, 3], batch norm, relu",
    uses=("m", "k", "n"),
    arguments=lambda m, k, n: CONV.arguments(m, k, n)[:1],
    results=CONV.results,
    weights=lambda m, k, n: [
        TensorInit("0.weight", (n, k, 3, 3), stddev=(9 * k) ** -0.5),
        *(
            TensorInit(name, (n,), start, 0.02)
            for name, start in zip(_NORM, (1.0, 0.0, 0.0, 1.0), strict=True)
        ),
    ],
    statistics=_NORM[2:],
    flops=CONV.flops,
    torch=_torch,
    jax=_jax,
    tensorflow=_tensorflow,
)
