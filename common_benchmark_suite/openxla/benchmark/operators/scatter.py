"""scatter: adds n rows to rows of [m, k] selected by index, which may repeat."""

from typing import Any

from openxla.benchmark.operators.definition import Argument, Operator


def _torch(x: Any, rows: Any, added: Any) -> Any:
    return x.index_add(0, rows, added)


def _jax(x: Any, rows: Any, added: Any) -> Any:
    return x.at[rows].add(added, mode="promise_in_bounds")


def _tensorflow(x: Any, rows: Any, added: Any) -> Any:
    import tensorflow as tf

    return tf.tensor_scatter_nd_add(x, rows[:, None], added)


OPERATOR = Operator(
    name="scatter",
    description="[n, k] added to rows of [m, k]",
    uses=("m", "k", "n"),
    arguments=lambda m, k, n: [
        Argument(shape=(m, k)),
        Argument(shape=(n,), values="indices", below=m),
        Argument(shape=(n, k)),
    ],
    results=lambda m, k, n: [Argument(shape=(m, k))],
    torch=_torch,
    jax=_jax,
    tensorflow=_tensorflow,
)
