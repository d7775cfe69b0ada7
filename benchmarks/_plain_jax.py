"""Parts of networks written out in jax.numpy: functions of a dict of arrays, no layers.

In the style of public repositories that have no library of layers (jax-ml's examples, picoGPT).
Attention has two versions: matrix products, and `jax.nn.dot_product_attention`, which flax.nnx also
calls for models without dropout.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Weights = Mapping[str, jax.Array]
Config = Mapping[str, Any]
# (query, key, value, bias, causal, scale) -> context; all [batch, seq, heads, head size], and keys
# and values may have fewer heads.
Attend = Callable[..., jax.Array]
# (weights, *inputs) -> output
Network = Callable[..., jax.Array]


def linear(w: Weights, name: str, x: jax.Array) -> jax.Array:
    """[..., in] -> [..., out]; with the bias if the checkpoint has one."""
    y = x @ w[f"{name}.weight"]
    bias = w.get(f"{name}.bias")
    return y if bias is None else y + bias


def layer_norm(w: Weights, name: str, x: jax.Array, epsilon: float) -> jax.Array:
    centred = x - x.mean(-1, keepdims=True)
    variance = jnp.square(centred).mean(-1, keepdims=True)
    scaled = centred * jax.lax.rsqrt(variance + epsilon)
    return scaled * w[f"{name}.weight"] + w[f"{name}.bias"]


def rms_norm(w: Weights, name: str, x: jax.Array, epsilon: float, base: float = 0.0) -> jax.Array:
    scale = jax.lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + epsilon)
    return x * scale * (base + w[f"{name}.weight"])


def group_norm(w: Weights, name: str, x: jax.Array, groups: int, epsilon: float) -> jax.Array:
    batch, height, width, channels = x.shape
    grouped = x.reshape(batch, height * width, groups, channels // groups)
    centred = grouped - grouped.mean((1, 3), keepdims=True)
    variance = jnp.square(centred).mean((1, 3), keepdims=True)
    scaled = (centred * jax.lax.rsqrt(variance + epsilon)).reshape(x.shape)
    return scaled * w[f"{name}.weight"] + w[f"{name}.bias"]


def batch_norm(w: Weights, name: str, x: jax.Array, epsilon: float) -> jax.Array:
    scale, bias, mean, variance = (
        w[f"{name}.{part}"] for part in ("weight", "bias", "running_mean", "running_var")
    )
    return (x - mean) * (jax.lax.rsqrt(variance + epsilon) * scale) + bias


def conv(
    w: Weights,
    name: str,
    x: jax.Array,
    *,
    stride: int = 1,
    padding: Sequence[int] | None = None,
    groups: int = 1,
) -> jax.Array:
    """[batch, ..., in] -> [batch, ..., out], one or two dimensions; with the bias if there is one.

    Padding: zeros before and after, half the kernel if none is given.
    """
    kernel = w[f"{name}.weight"]
    around = tuple(padding or 2 * [kernel.shape[0] // 2])
    dims = kernel.ndim - 2
    y = jax.lax.conv_general_dilated(
        x,
        kernel,
        dims * (stride,),
        dims * [around],
        dimension_numbers=("NHWC", "HWIO", "NHWC") if dims == 2 else ("NWC", "WIO", "NWC"),
        feature_group_count=groups,
    )
    bias = w.get(f"{name}.bias")
    return y if bias is None else y + bias


def heads(x: jax.Array, count: int) -> jax.Array:
    """[batch, seq, width] -> [batch, seq, heads, head size]."""
    return x.reshape(*x.shape[:2], count, -1)


def merged(x: jax.Array) -> jax.Array:
    """[batch, seq, heads, head size] -> [batch, seq, width]."""
    return x.reshape(*x.shape[:2], -1)


def matrix_attention(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    *,
    bias: jax.Array | None = None,
    causal: bool = False,
    scale: float | None = None,
) -> jax.Array:
    """Computes attention with matrix products, with the heads as a leading axis."""
    group = query.shape[2] // key.shape[2]
    if group > 1:
        key, value = (jnp.repeat(part, group, axis=2) for part in (key, value))
    query, key, value = (part.transpose(0, 2, 1, 3) for part in (query, key, value))
    size = query.shape[-1] ** -0.5 if scale is None else scale
    scores = query @ key.swapaxes(-1, -2)
    scores = scores if size == 1 else scores * np.float32(size)
    scores = scores if bias is None else scores + bias
    if causal:
        visible = np.tri(query.shape[2], dtype=np.bool_)
        scores = jnp.where(visible, scores, jnp.finfo(scores.dtype).min)
    return (jax.nn.softmax(scores, axis=-1) @ value).transpose(0, 2, 1, 3)


def library_attention(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    *,
    bias: jax.Array | None = None,
    causal: bool = False,
    scale: float | None = None,
) -> jax.Array:
    """Computes attention with JAX's own function."""
    return jax.nn.dot_product_attention(query, key, value, bias=bias, is_causal=causal, scale=scale)


ATTENTIONS: Mapping[str, Attend] = {
    "plain jax.numpy": matrix_attention,
    "plain, jax.nn's attention": library_attention,
}
