"""embedding: m rows of a table [n, k], selected by index."""

from typing import Any

from openxla.benchmark.operators.definition import Argument, Operator


def _torch(rows: Any, table: Any) -> Any:
    import torch

    return torch.nn.functional.embedding(rows, table)


def _jax(rows: Any, table: Any) -> Any:
    return table.at[rows].get(mode="promise_in_bounds")


def _tensorflow(rows: Any, table: Any) -> Any:
    import tensorflow as tf

    return tf.gather(table, rows)


OPERATOR = Operator(
    name="embedding",
    description="m rows of a table [n, k]",
    uses=("m", "k", "n"),
    arguments=lambda m, k, n: [
        Argument(shape=(m,), values="indices", below=n),
        Argument(shape=(n, k)),
    ],
    results=lambda m, k, n: [Argument(shape=(m, k))],
    torch=_torch,
    jax=_jax,
    tensorflow=_tensorflow,
)
