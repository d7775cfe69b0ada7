"""transpose: [m, k] to [k, m], as a copy in memory, not as a view."""

from typing import Any

from openxla.benchmark.operators.definition import Argument, Operator


def _torch(x: Any) -> Any:
    return x.t().contiguous()


def _jax(x: Any) -> Any:
    return x.T


def _tensorflow(x: Any) -> Any:
    import tensorflow as tf

    return tf.transpose(x)


OPERATOR = Operator(
    name="transpose",
    description="[m, k] to [k, m], in memory",
    uses=("m", "k"),
    arguments=lambda m, k, n: [Argument(shape=(m, k))],
    results=lambda m, k, n: [Argument(shape=(k, m))],
    torch=_torch,
    jax=_jax,
    tensorflow=_tensorflow,
)
