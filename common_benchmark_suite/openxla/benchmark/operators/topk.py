"""topk: the 8 largest numbers of each row of [m, k], and their indices.

All numbers of a row differ, so every framework finds them in the same order. Indices are 32-bit
integers, as in JAX and TensorFlow; PyTorch's 64-bit indices are cast.
"""

from typing import Any

from openxla.benchmark.operators.definition import Argument, Operator

COUNT = 8


def _torch(x: Any) -> Any:
    import torch

    values, places = x.topk(min(COUNT, x.shape[-1]))
    return values, places.to(torch.int32)


def _jax(x: Any) -> Any:
    import jax

    return tuple(jax.lax.top_k(x, min(COUNT, x.shape[-1])))


def _tensorflow(x: Any) -> Any:
    import tensorflow as tf

    return tuple(tf.math.top_k(x, min(COUNT, x.shape[-1])))


def _results(m: int, k: int, n: int) -> list[Argument]:
    shape = (m, min(COUNT, k))
    return [Argument(shape=shape), Argument(shape=shape, dtype="i32")]


OPERATOR = Operator(
    name="topk",
    description="the 8 largest of each row of [m, k]",
    uses=("m", "k"),
    arguments=lambda m, k, n: [Argument(shape=(m, k), values="distinct")],
    results=_results,
    torch=_torch,
    jax=_jax,
    tensorflow=_tensorflow,
)
