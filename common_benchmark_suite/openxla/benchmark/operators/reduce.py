"""reduce: the sum over the last axis of [m, k], in fp32 for every type."""

from typing import Any

from openxla.benchmark.operators.definition import Argument, Operator


def _torch(x: Any) -> Any:
    return x.sum(-1)


def _jax(x: Any) -> Any:
    from openxla.benchmark.operators.precision import wide_jax

    return wide_jax(x).sum(-1).astype(x.dtype)


def _tensorflow(x: Any) -> Any:
    import tensorflow as tf

    from openxla.benchmark.operators.precision import wide_tensorflow

    return tf.cast(tf.reduce_sum(wide_tensorflow(x), -1), x.dtype)


def _second(x: Any) -> Any:
    # The usual rule reverses rows, which changes no sum.
    return [x[::-1] if len(x) > 1 else -x]


OPERATOR = Operator(
    name="reduce",
    description="sum over the last axis of [m, k]",
    uses=("m", "k"),
    arguments=lambda m, k, n: [Argument(shape=(m, k))],
    results=lambda m, k, n: [Argument(shape=(m,))],
    torch=_torch,
    jax=_jax,
    tensorflow=_tensorflow,
    second_inputs=_second,
)
