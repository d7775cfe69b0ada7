"""matmul: [m, k] times [k, n]."""

from typing import Any

from openxla.benchmark.operators.definition import Argument, Operator


def _torch(a: Any, b: Any) -> Any:
    return a @ b


def _tensorflow(a: Any, b: Any) -> Any:
    import tensorflow as tf

    return tf.linalg.matmul(a, b)


OPERATOR = Operator(
    name="matmul",
    description="[m, k] times [k, n]",
    uses=("m", "k", "n"),
    arguments=lambda m, k, n: [Argument(shape=(m, k)), Argument(shape=(k, n))],
    results=lambda m, k, n: [Argument(shape=(m, n))],
    flops=lambda m, k, n: 2 * m * k * n,
    torch=_torch,
    jax=_torch,
    tensorflow=_tensorflow,
)
