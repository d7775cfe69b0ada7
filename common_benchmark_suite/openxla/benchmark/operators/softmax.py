"""softmax over the last axis of [m, k], in fp32 for every type, as in PyTorch."""

from typing import Any

from openxla.benchmark.operators.definition import Argument, Operator


def _torch(x: Any) -> Any:
    return x.softmax(-1)


def _jax(x: Any) -> Any:
    import jax

    from openxla.benchmark.operators.precision import wide_jax

    return jax.nn.softmax(wide_jax(x), axis=-1).astype(x.dtype)


def _tensorflow(x: Any) -> Any:
    import tensorflow as tf

    from openxla.benchmark.operators.precision import wide_tensorflow

    return tf.cast(tf.nn.softmax(wide_tensorflow(x), axis=-1), x.dtype)


OPERATOR = Operator(
    name="softmax",
    description="over the last axis of [m, k]",
    uses=("m", "k"),
    arguments=lambda m, k, n: [Argument(shape=(m, k))],
    results=lambda m, k, n: [Argument(shape=(m, k))],
    torch=_torch,
    jax=_jax,
    tensorflow=_tensorflow,
)
