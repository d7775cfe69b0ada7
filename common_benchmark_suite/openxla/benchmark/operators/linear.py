"""linear: [m, k] times the layer's matrix [n, k], without bias."""

from typing import Any

from openxla.benchmark.models.architectures.base import TensorInit
from openxla.benchmark.operators.definition import Argument, Layer

WEIGHT = "weight"


def _torch(m: int, k: int, n: int) -> Any:
    import torch

    return torch.nn.Linear(k, n, bias=False)


def _jax(weights: Any, x: Any) -> Any:
    from openxla.benchmark.operators.precision import linear_jax

    return linear_jax(x, weights[WEIGHT])


def _tensorflow(weights: Any, x: Any) -> Any:
    import tensorflow as tf

    return tf.linalg.matmul(x, weights[WEIGHT], transpose_b=True)


OPERATOR = Layer(
    name="linear",
    description="[m, k] times a weight matrix [n, k]",
    uses=("m", "k", "n"),
    arguments=lambda m, k, n: [Argument(shape=(m, k))],
    results=lambda m, k, n: [Argument(shape=(m, n))],
    weights=lambda m, k, n: [TensorInit(WEIGHT, (n, k), stddev=k**-0.5)],
    flops=lambda m, k, n: 2 * m * k * n,
    torch=_torch,
    jax=_jax,
    tensorflow=_tensorflow,
)
