"""Layers in JAX whose sums are at least float32 and rounded once, as in PyTorch's libraries.

JAX lets the compiler choose the accumulation type of 16-bit products: XLA for CPUs uses float32,
IREE float16 (docs/design/0009-precision-of-runtimes.md). Here the program specifies it.
"""

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx


def wide(x: jax.Array) -> Any:
    """Returns the type in which sums over x are computed: float32, or its own if wider."""
    return jnp.promote_types(x.dtype, jnp.float32)


def product(subscripts: str, first: jax.Array, second: jax.Array) -> jax.Array:
    """Returns `jnp.einsum` of two arrays of one type, in that type, summed in `wide`."""
    summed = jnp.einsum(subscripts, first, second, preferred_element_type=wide(first))
    return summed.astype(first.dtype)


def _dot_general(first: jax.Array, *operands: Any, **options: Any) -> jax.Array:
    return jax.lax.dot_general(
        first, *operands, **{**options, "preferred_element_type": wide(first)}
    )


def _conv_general_dilated(first: jax.Array, *operands: Any, **options: Any) -> jax.Array:
    # A depthwise sum has few terms, and IREE 3.13 cannot compile one whose type differs from that
    # of its factors.
    if options.get("feature_group_count", 1) == 1:
        options["preferred_element_type"] = wide(first)
    return jax.lax.conv_general_dilated(first, *operands, **options)


class Linear(nnx.Linear):
    """A linear layer; product and bias are summed in `wide`, [..., inputs] -> [..., outputs]."""

    def __init__(self, inputs: int, outputs: int, *, rngs: nnx.Rngs, use_bias: bool = True) -> None:
        super().__init__(inputs, outputs, use_bias=use_bias, dot_general=_dot_general, rngs=rngs)

    def __call__(self, inputs: jax.Array, *args: Any, **options: Any) -> jax.Array:
        """[..., inputs] -> [..., outputs], of the type of the input."""
        return super().__call__(inputs, *args, **options).astype(inputs.dtype)


class Conv(nnx.Conv):
    """A convolution, channels-last; products and bias are summed in `wide`."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options, conv_general_dilated=_conv_general_dilated)

    def __call__(self, inputs: jax.Array, *args: Any, **options: Any) -> jax.Array:
        """[batch, ..., inputs] -> [batch, ..., outputs], of the type of the input."""
        return super().__call__(inputs, *args, **options).astype(inputs.dtype)


class BatchNorm(nnx.Module):
    """Batch norm with running statistics, then swish if `activate`.

    The result is rounded once: `nnx.BatchNorm` rounds each step to the type of its input, and in
    bfloat16 the errors add up over fifty layers.
    """

    def __init__(self, channels: int, epsilon: float, *, activate: bool = False) -> None:
        self.epsilon, self.activate = epsilon, activate
        self.scale, self.bias = nnx.Param(jnp.ones(channels)), nnx.Param(jnp.zeros(channels))
        self.mean, self.var = nnx.BatchStat(jnp.zeros(channels)), nnx.BatchStat(jnp.ones(channels))

    def __call__(self, x: jax.Array) -> jax.Array:
        """[..., channels] -> the same."""
        scale, bias, mean, var = (
            part[...].astype(wide(x)) for part in (self.scale, self.bias, self.mean, self.var)
        )
        y = (x.astype(wide(x)) - mean) * (scale * jax.lax.rsqrt(var + self.epsilon)) + bias
        return (jax.nn.silu(y) if self.activate else y).astype(x.dtype)
