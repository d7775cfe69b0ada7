"""gelu of [m, k], exact (with the error function), not the tanh approximation."""

from typing import Any

from openxla.benchmark.operators.definition import Argument, Operator


def _torch(x: Any) -> Any:
    import torch

    return torch.nn.functional.gelu(x)


def _jax(x: Any) -> Any:
    import jax

    from openxla.benchmark.operators.precision import wide_jax

    return jax.nn.gelu(wide_jax(x), approximate=False).astype(x.dtype)


def _tensorflow(x: Any) -> Any:
    from openxla.benchmark.models.tf.operations import gelu

    return gelu(x)


OPERATOR = Operator(
    name="gelu",
    description="elementwise on [m, k]",
    uses=("m", "k"),
    arguments=lambda m, k, n: [Argument(shape=(m, k))],
    results=lambda m, k, n: [Argument(shape=(m, k))],
    torch=_torch,
    jax=_jax,
    tensorflow=_tensorflow,
)
