"""Layers in JAX whose sums are at least float32 and rounded once, as in PyTorch's libraries.

JAX lets the compiler choose the accumulation type of 16-bit products: XLA for CPUs uses float32,
IREE float16 (docs/design/0009-precision-of-runtimes.md). Here the program specifies it.
`jax.nn.dot_product_attention` computes the same as our attention, but always takes the softmax in
float32, which would cost a float64 run nine digits. Pictures are channels-last.
"""

from collections.abc import Collection
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
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


def attention(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    *,
    heads: int,
    causal: bool = False,
    bias: jax.Array | None = None,
) -> jax.Array:
    """Multi-head attention; scores and softmax are at least float32.

    Args:
      query: [batch, queries, heads * head_size].
      key: [batch, keys, heads * head_size].
      value: [batch, keys, heads * head_size].
      heads: number of heads.
      causal: whether a query only attends to keys up to its own position.
      bias: [batch, 1, 1, keys] to add to the scores, in `wide`.

    Returns:
      [batch, queries, heads * head_size], of the type of the query.
    """
    batch, length, width = query.shape
    head_size = width // heads
    # Heads come first: with positions first, XLA's matrix products on CPUs are slower, by a fifth
    # for Whisper.
    query, key, value = (
        part.reshape(batch, -1, heads, head_size).swapaxes(1, 2) for part in (query, key, value)
    )
    wide = jnp.promote_types(query.dtype, jnp.float32)
    scores = jnp.einsum("bhqd,bhkd->bhqk", query, key, preferred_element_type=wide)
    scores *= np.sqrt(1 / head_size).astype(wide)
    if causal:
        visible = np.tri(length, dtype=np.bool_)
        scores = jnp.where(visible, scores, jnp.finfo(wide).min)
    weights = jax.nn.softmax(scores if bias is None else scores + bias).astype(value.dtype)
    context = product("bhqk,bhkd->bhqd", weights, value)
    return context.swapaxes(1, 2).reshape(batch, length, width)


class MultiHeadAttention(nnx.Module):
    """Multi-head attention of a sequence to itself or to another.

    Args:
      width: width of queries and outputs.
      heads: number of heads.
      rngs: random generators of flax.
      context_width: width of the other sequence; `width` unless given.
      biases: which of query, key and value have one; the output always does.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        rngs: nnx.Rngs,
        *,
        context_width: int | None = None,
        biases: Collection[str] = ("query", "key", "value"),
    ) -> None:
        context_width = context_width or width
        self.heads = heads
        self.query = Linear(width, width, use_bias="query" in biases, rngs=rngs)
        self.key = Linear(context_width, width, use_bias="key" in biases, rngs=rngs)
        self.value = Linear(context_width, width, use_bias="value" in biases, rngs=rngs)
        self.output = Linear(width, width, rngs=rngs)

    def __call__(self, x: jax.Array, context: jax.Array, **options: Any) -> jax.Array:
        """[batch, queries, width], [batch, keys, context_width] -> [batch, queries, width].

        `attention` describes the options.
        """
        query, key, value = self.query(x), self.key(context), self.value(context)
        return self.output(attention(query, key, value, heads=self.heads, **options))


def layer_norm(width: int, epsilon: float, rngs: nnx.Rngs) -> nnx.LayerNorm:
    """Returns a layer norm (arXiv:1607.06450)."""
    # Two-pass variance: the fast one loses digits that the other frameworks keep.
    return nnx.LayerNorm(width, epsilon=epsilon, use_fast_variance=False, rngs=rngs)


def group_norm(channels: int, groups: int, epsilon: float, rngs: nnx.Rngs) -> nnx.GroupNorm:
    """Returns a group norm (Wu and He 2018, arXiv:1803.08494)."""
    # Two-pass variance: the fast one loses digits that the other frameworks keep.
    return nnx.GroupNorm(
        channels, num_groups=groups, epsilon=epsilon, use_fast_variance=False, rngs=rngs
    )


def conv(inputs: int, outputs: int, kernel: int, rngs: nnx.Rngs, **options: Any) -> Conv:
    """Returns a square convolution with explicit symmetric padding, as in torch."""
    # "SAME" would shift strided windows by one pixel.
    return Conv(inputs, outputs, (kernel, kernel), padding=kernel // 2, rngs=rngs, **options)


class ResnetBlock(nnx.Module):
    """Norm, SiLU and convolution, twice, with the timestep added between, and a residual sum."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        *,
        groups: int,
        epsilon: float,
        rngs: nnx.Rngs,
        time_width: int | None = None,
    ) -> None:
        self.norm1 = group_norm(inputs, groups, epsilon, rngs)
        self.conv1 = conv(inputs, outputs, 3, rngs)
        self.time = None if time_width is None else nnx.data(Linear(time_width, outputs, rngs=rngs))
        self.norm2 = group_norm(outputs, groups, epsilon, rngs)
        self.conv2 = conv(outputs, outputs, 3, rngs)
        self.shortcut = nnx.data(conv(inputs, outputs, 1, rngs)) if inputs != outputs else None

    def __call__(self, x: jax.Array, time: jax.Array | None = None) -> jax.Array:
        """[batch, height, width, inputs], time [batch, time_width] -> [..., outputs]."""
        residual = x if self.shortcut is None else self.shortcut(x)
        y = self.conv1(jax.nn.silu(self.norm1(x)))
        if self.time is not None:
            y = y + self.time(jax.nn.silu(time))[:, None, None, :]
        return residual + self.conv2(jax.nn.silu(self.norm2(y)))


def upsample(x: jax.Array) -> jax.Array:
    """Repeats each pixel, [batch, height, width, channels] -> [batch, 2 height, 2 width, ...]."""
    batch, height, width, channels = x.shape
    # A broadcast can be fused into the next convolution; an image resize would gather.
    repeated = jnp.broadcast_to(x[:, :, None, :, None, :], (batch, height, 2, width, 2, channels))
    return repeated.reshape(batch, 2 * height, 2 * width, channels)
