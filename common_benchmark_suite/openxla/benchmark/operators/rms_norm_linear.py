"""rms_norm_linear: RMS norm of [m, k] with a scale, then a matrix [n, k]."""

from typing import Any

from openxla.benchmark.models.architectures.base import TensorInit
from openxla.benchmark.operators.definition import Argument, Layer
from openxla.benchmark.operators.rms_norm import EPSILON
from openxla.benchmark.operators.rms_norm import OPERATOR as NORM

SCALE, WEIGHT = "0.weight", "1.weight"


def _torch(m: int, k: int, n: int) -> Any:
    import torch

    return torch.nn.Sequential(torch.nn.RMSNorm(k, eps=EPSILON), torch.nn.Linear(k, n, bias=False))


def _jax(weights: Any, x: Any) -> Any:
    from openxla.benchmark.operators.precision import linear_jax

    return linear_jax(NORM.jax(x, weights[SCALE]), weights[WEIGHT])


def _tensorflow(weights: Any, x: Any) -> Any:
    import tensorflow as tf

    normal = NORM.tensorflow(x, weights[SCALE])
    return tf.linalg.matmul(normal, weights[WEIGHT], transpose_b=True)


OPERATOR = Layer(
    name="rms_norm_linear",
    description="RMS norm of [m, k] with a scale, a matrix [n, k]",
    uses=("m", "k", "n"),
    arguments=lambda m, k, n: [Argument(shape=(m, k))],
    results=lambda m, k, n: [Argument(shape=(m, n))],
    weights=lambda m, k, n: [
        TensorInit(SCALE, (k,), 1.0, 0.02),
        TensorInit(WEIGHT, (n, k), stddev=k**-0.5),
    ],
    flops=lambda m, k, n: 2 * m * k * n,
    torch=_torch,
    jax=_jax,
    tensorflow=_tensorflow,
)
