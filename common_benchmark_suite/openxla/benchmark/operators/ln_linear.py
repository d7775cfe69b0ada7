"""ln_linear_<activation>: layer norm of [m, k] without weights, a matrix [n, k], an activation."""

import functools
from typing import Any

from openxla.benchmark.models.architectures.base import TensorInit
from openxla.benchmark.operators.definition import Argument, Layer
from openxla.benchmark.operators.layer_norm import EPSILON

WEIGHT = "1.weight"
LEAK = 0.01
# Activations in torch, JAX and TensorFlow.
ACTIVATIONS = {
    "sigmoid": ("Sigmoid", "sigmoid", "sigmoid"),
    "relu": ("ReLU", "relu", "relu"),
    "leakyrelu": ("LeakyReLU", "leaky_relu", "leaky_relu"),
    "relu6": ("ReLU6", "relu6", "relu6"),
    "gelu": ("GELU", "gelu", "gelu"),
    "silu": ("SiLU", "silu", "silu"),
    "hardswish": ("Hardswish", "hard_swish", ""),
}


def _torch(activation: str, m: int, k: int, n: int) -> Any:
    import torch

    return torch.nn.Sequential(
        torch.nn.LayerNorm(k, eps=EPSILON, elementwise_affine=False),
        torch.nn.Linear(k, n, bias=False),
        getattr(torch.nn, ACTIVATIONS[activation][0])(),
    )


def _jax(activation: str, weights: Any, x: Any) -> Any:
    import jax

    from openxla.benchmark.operators.precision import linear_jax, standardized_jax, wide_jax

    y = linear_jax(standardized_jax(x, EPSILON).astype(x.dtype), weights[WEIGHT])
    options = {"approximate": False} if activation == "gelu" else {}
    return getattr(jax.nn, ACTIVATIONS[activation][1])(wide_jax(y), **options).astype(x.dtype)


def _tensorflow(activation: str, weights: Any, x: Any) -> Any:
    import tensorflow as tf

    from openxla.benchmark.models.tf.operations import gelu
    from openxla.benchmark.operators.precision import standardized_tensorflow, wide_tensorflow

    normal = tf.cast(standardized_tensorflow(x, EPSILON), x.dtype)
    y = wide_tensorflow(tf.linalg.matmul(normal, weights[WEIGHT], transpose_b=True))
    if activation == "hardswish":
        return tf.cast(y * tf.nn.relu6(y + 3) / 6, x.dtype)
    if activation == "gelu":
        return tf.cast(gelu(y), x.dtype)
    if activation == "leakyrelu":
        # TensorFlow's operation stores the slope in float32, which is too coarse for a truth.
        sloped = tf.maximum(y, LEAK * y) if y.dtype == tf.float64 else tf.nn.leaky_relu(y, LEAK)
        return tf.cast(sloped, x.dtype)
    return tf.cast(getattr(tf.nn, ACTIVATIONS[activation][2])(y), x.dtype)


def _layer(activation: str) -> Layer:
    return Layer(
        name=f"ln_linear_{activation}",
        description=f"layer norm of [m, k], a matrix [n, k], {activation}",
        uses=("m", "k", "n"),
        arguments=lambda m, k, n: [Argument(shape=(m, k))],
        results=lambda m, k, n: [Argument(shape=(m, n))],
        weights=lambda m, k, n: [TensorInit(WEIGHT, (n, k), stddev=k**-0.5)],
        flops=lambda m, k, n: 2 * m * k * n,
        torch=functools.partial(_torch, activation),
        jax=functools.partial(_jax, activation),
        tensorflow=functools.partial(_tensorflow, activation),
    )


SIGMOID, RELU, LEAKYRELU, RELU6, GELU, SILU, HARDSWISH = map(_layer, ACTIVATIONS)
