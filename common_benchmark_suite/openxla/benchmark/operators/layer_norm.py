"""layer_norm over the last axis of [m, k], with scale and bias; epsilon 1e-5, sums in fp32."""

from typing import Any

from openxla.benchmark.operators.definition import Argument, Operator

EPSILON = 1e-5


def _torch(x: Any, scale: Any, bias: Any) -> Any:
    import torch

    return torch.nn.functional.layer_norm(x, x.shape[-1:], scale, bias, EPSILON)


def _jax(x: Any, scale: Any, bias: Any) -> Any:
    from openxla.benchmark.operators.precision import standardized_jax, wide_jax

    return (standardized_jax(x, EPSILON) * wide_jax(scale) + wide_jax(bias)).astype(x.dtype)


def _tensorflow(x: Any, scale: Any, bias: Any) -> Any:
    import tensorflow as tf

    from openxla.benchmark.operators.precision import standardized_tensorflow, wide_tensorflow

    scale, bias = wide_tensorflow(scale), wide_tensorflow(bias)
    return tf.cast(standardized_tensorflow(x, EPSILON) * scale + bias, x.dtype)


OPERATOR = Operator(
    name="layer_norm",
    description="over the last axis of [m, k], scale and bias [k]",
    uses=("m", "k"),
    arguments=lambda m, k, n: [Argument(shape=(m, k)), Argument(shape=(k,)), Argument(shape=(k,))],
    results=lambda m, k, n: [Argument(shape=(m, k))],
    torch=_torch,
    jax=_jax,
    tensorflow=_tensorflow,
)
