"""BERT and ResNet written out in jax.numpy: functions of a dict of arrays, no layers."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from openxla.benchmark.models import checkpoints
from openxla.benchmark.models.jax.flax_model import FlaxModel

Weights = Mapping[str, jax.Array]


def arrays(model: FlaxModel) -> Weights:
    """Returns the checkpoint by its own names; matrices [in, out], kernels [h, w, in, out]."""
    layouts: dict[int, tuple[int, ...]] = {2: (1, 0), 4: (2, 3, 1, 0)}
    tensors = checkpoints.load_tensors(model.architecture, model.checkpoint)
    return {
        name: jnp.asarray(
            value.transpose(layouts[value.ndim])
            if value.ndim in layouts and "embeddings" not in name
            else value
        )
        for name, value in tensors.items()
        if value.dtype == np.float32
    }


def config_of(model: FlaxModel) -> Mapping[str, Any]:
    return model.architecture.config(str(model.model_parameters["model_name"]))


def plain_bert(model: FlaxModel) -> Callable[..., jax.Array]:
    """Returns BERT as a function of a dict of arrays and the inputs."""
    config = config_of(model)
    heads, epsilon = config["num_attention_heads"], config["layer_norm_eps"]

    def linear(w: Weights, name: str, x: jax.Array) -> jax.Array:
        return x @ w[f"{name}.weight"] + w[f"{name}.bias"]

    def norm(w: Weights, name: str, x: jax.Array) -> jax.Array:
        centred = x - x.mean(-1, keepdims=True)
        variance = jnp.square(centred).mean(-1, keepdims=True)
        scaled = centred * jax.lax.rsqrt(variance + epsilon)
        return scaled * w[f"{name}.weight"] + w[f"{name}.bias"]

    def attention(w: Weights, name: str, x: jax.Array, bias: jax.Array) -> jax.Array:
        batch, seq, hidden = x.shape
        query, key, value = (
            linear(w, f"{name}.self.{part}", x)
            .reshape(batch, seq, heads, hidden // heads)
            .transpose(0, 2, 1, 3)
            for part in ("query", "key", "value")
        )
        scores = query @ key.swapaxes(-1, -2) / np.float32(np.sqrt(hidden // heads)) + bias
        context = jax.nn.softmax(scores, axis=-1) @ value
        merged = context.transpose(0, 2, 1, 3).reshape(batch, seq, hidden)
        return norm(w, f"{name}.output.LayerNorm", x + linear(w, f"{name}.output.dense", merged))

    def run(w: Weights, ids: jax.Array, mask: jax.Array) -> jax.Array:
        words, positions, types = (
            w[f"embeddings.{table}_embeddings.weight"]
            for table in ("word", "position", "token_type")
        )
        x = norm(w, "embeddings.LayerNorm", words[ids] + types[0] + positions[: ids.shape[1]])
        bias = jnp.where(mask[:, None, None, :] > 0, 0.0, jnp.finfo(jnp.float32).min)
        for index in range(config["num_hidden_layers"]):
            layer = f"encoder.layer.{index}"
            x = attention(w, f"{layer}.attention", x, bias)
            up = jax.nn.gelu(linear(w, f"{layer}.intermediate.dense", x), approximate=False)
            x = norm(w, f"{layer}.output.LayerNorm", x + linear(w, f"{layer}.output.dense", up))
        return x

    return run


def plain_resnet(model: FlaxModel) -> Callable[..., jax.Array]:
    """Returns ResNet as a function of a dict of arrays and the pixels."""
    depths = config_of(model)["depths"]

    def conv(w: Weights, name: str, x: jax.Array, stride: int = 1) -> jax.Array:
        kernel = w[f"{name}.convolution.weight"]
        pad = kernel.shape[0] // 2
        y = jax.lax.conv_general_dilated(
            x,
            kernel,
            (stride, stride),
            [(pad, pad)] * 2,
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )
        scale, bias, mean, variance = (
            w[f"{name}.normalization.{part}"]
            for part in ("weight", "bias", "running_mean", "running_var")
        )
        return (y - mean) * (jax.lax.rsqrt(variance + 1e-5) * scale) + bias

    def run(w: Weights, pixels: jax.Array) -> jax.Array:
        x = jnp.maximum(conv(w, "resnet.embedder.embedder", pixels.transpose(0, 2, 3, 1), 2), 0)
        window, strides, edge = (1, 3, 3, 1), (1, 2, 2, 1), (1, 1)
        padding = ((0, 0), edge, edge, (0, 0))
        x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, window, strides, padding)
        for stage, depth in enumerate(depths):
            for block in range(depth):
                name = f"resnet.encoder.stages.{stage}.layers.{block}"
                stride = 2 if stage > 0 and block == 0 else 1
                y = jnp.maximum(conv(w, f"{name}.layer.0", x), 0)
                y = jnp.maximum(conv(w, f"{name}.layer.1", y, stride), 0)
                if block == 0:
                    x = conv(w, f"{name}.shortcut", x, stride)
                x = jnp.maximum(conv(w, f"{name}.layer.2", y) + x, 0)
        return x.mean((1, 2)) @ w["classifier.1.weight"] + w["classifier.1.bias"]

    return run
