"""gather: n columns of [m, k], selected by index."""

from typing import Any

from openxla.benchmark.operators.definition import Argument, Operator


def _torch(x: Any, columns: Any) -> Any:
    return x.index_select(1, columns)


def _jax(x: Any, columns: Any) -> Any:
    return x.at[:, columns].get(mode="promise_in_bounds")


def _tensorflow(x: Any, columns: Any) -> Any:
    import tensorflow as tf

    return tf.gather(x, columns, axis=1)


OPERATOR = Operator(
    name="gather",
    description="n columns of [m, k]",
    uses=("m", "k", "n"),
    arguments=lambda m, k, n: [
        Argument(shape=(m, k)),
        Argument(shape=(n,), values="indices", below=k),
    ],
    results=lambda m, k, n: [Argument(shape=(m, n))],
    torch=_torch,
    jax=_jax,
    tensorflow=_tensorflow,
)
