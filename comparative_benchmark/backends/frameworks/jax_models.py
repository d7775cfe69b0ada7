"""JAX models as pure functions with weights, and the precision to trace them in."""

import contextlib
from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp

from comparative_benchmark.backends import host_settings


def split(model: Any) -> tuple[Callable[..., Any], Any]:
    """Returns a model's pure function and its weights.

    These are `apply(params, *inputs)` and `params`, if the model has them; otherwise `forward`,
    with whatever it closes over, and no weights.
    """
    if hasattr(model, "apply") and hasattr(model, "params"):
        return model.apply, model.params
    return (lambda _, *inputs: model.forward(*inputs)), ()


def precision(*, on_gpu: bool, types: Iterable[str]) -> contextlib.AbstractContextManager[Any]:
    """Returns a context to trace in, which forbids TF32 to a float32 model on a GPU.

    Traced products and convolutions keep this precision. A 16-bit model is traced as its users
    trace it.
    """
    if on_gpu and host_settings.is_float32(types):
        context: contextlib.AbstractContextManager[Any] = jax.default_matmul_precision("highest")
        return context
    return contextlib.nullcontext()


def widened(tree: Any) -> Any:
    """Returns arrays with floating-point numbers as float64; requires 64 bits to be enabled."""
    return jax.tree.map(
        lambda leaf: (
            jnp.asarray(leaf, jnp.float64) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf
        ),
        tree,
    )
