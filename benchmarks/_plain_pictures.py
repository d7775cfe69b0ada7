"""Convolutional networks written out in jax.numpy: functions of a dict of arrays, no layers.

Each function takes a configuration and an attention function, as in `_plain_text`. Pictures are
channels-last; only the input is transposed.
"""

import jax
import jax.numpy as jnp
import numpy as np
from _plain_jax import (
    Attend,
    Config,
    Network,
    Weights,
    batch_norm,
    conv,
    group_norm,
    heads,
    layer_norm,
    linear,
    merged,
)

from openxla.benchmark.models.architectures import efficientnet as efficientnet_architecture
from openxla.benchmark.models.architectures import sd_unet as sd_unet_architecture
from openxla.benchmark.models.architectures import sd_vae as sd_vae_architecture
from openxla.benchmark.models.architectures.diffusion import Stage


def resnet(config: Config, _: Attend) -> Network:
    def conv_norm(w: Weights, name: str, x: jax.Array, stride: int = 1) -> jax.Array:
        y = conv(w, f"{name}.convolution", x, stride=stride)
        return batch_norm(w, f"{name}.normalization", y, 1e-5)

    def run(w: Weights, pixels: jax.Array) -> jax.Array:
        x = jax.nn.relu(conv_norm(w, "resnet.embedder.embedder", pixels.transpose(0, 2, 3, 1), 2))
        edge = (1, 1)
        x = jax.lax.reduce_window(
            x, -jnp.inf, jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), ((0, 0), edge, edge, (0, 0))
        )
        for stage, depth in enumerate(config["depths"]):
            for block in range(depth):
                name = f"resnet.encoder.stages.{stage}.layers.{block}"
                stride = 2 if stage > 0 and block == 0 else 1
                y = jax.nn.relu(conv_norm(w, f"{name}.layer.0", x))
                y = jax.nn.relu(conv_norm(w, f"{name}.layer.1", y, stride))
                if block == 0:
                    x = conv_norm(w, f"{name}.shortcut", x, stride)
                x = jax.nn.relu(conv_norm(w, f"{name}.layer.2", y) + x)
        return linear(w, "classifier.1", x.mean((1, 2)))

    return run


def efficientnet(config: Config, _: Attend) -> Network:
    blocks, epsilon = list(efficientnet_architecture.blocks(config)), config["batch_norm_eps"]

    def run(w: Weights, pixels: jax.Array) -> jax.Array:
        stem = "efficientnet.embeddings"
        x = conv(w, f"{stem}.convolution", pixels.transpose(0, 2, 3, 1), stride=2, padding=(0, 1))
        x = jax.nn.silu(batch_norm(w, f"{stem}.batchnorm", x, epsilon))
        for index, block in enumerate(blocks):
            name, y = f"efficientnet.encoder.blocks.{index}", x
            if block.expands:
                part = f"{name}.expansion.expand"
                y = jax.nn.silu(batch_norm(w, f"{part}_bn", conv(w, f"{part}_conv", y), epsilon))
            part = f"{name}.depthwise_conv.depthwise"
            y = conv(
                w,
                f"{part}_conv",
                y,
                stride=block.stride,
                padding=block.padding,
                groups=block.expanded,
            )
            y = jax.nn.silu(batch_norm(w, f"{part}_norm", y, epsilon))
            gate = y.mean((1, 2), keepdims=True)
            gate = jax.nn.silu(conv(w, f"{name}.squeeze_excite.reduce", gate))
            y *= jax.nn.sigmoid(conv(w, f"{name}.squeeze_excite.expand", gate))
            part = f"{name}.projection.project"
            y = batch_norm(w, f"{part}_bn", conv(w, f"{part}_conv", y), epsilon)
            x = x + y if block.residual else y
        top = "efficientnet.encoder.top"
        x = jax.nn.silu(batch_norm(w, f"{top}_bn", conv(w, f"{top}_conv", x), epsilon))
        return linear(w, "classifier", x.mean((1, 2)))

    return run


def sd_unet(config: Config, attend: Attend) -> Network:
    groups, count = config["norm_num_groups"], config["attention_head_dim"]
    down = sd_unet_architecture.down_stages(config)
    up = sd_unet_architecture.up_stages(config)
    frequencies = np.array(sd_unet_architecture.timestep_frequencies(config), np.float32)

    def attention(w: Weights, name: str, x: jax.Array, context: jax.Array) -> jax.Array:
        query = heads(linear(w, f"{name}.to_q", x), count)
        key, value = (heads(linear(w, f"{name}.to_{side}", context), count) for side in "kv")
        return linear(w, f"{name}.to_out.0", merged(attend(query, key, value)))

    def transformer(w: Weights, name: str, x: jax.Array, text: jax.Array) -> jax.Array:
        block = f"{name}.transformer_blocks.0"
        y = conv(w, f"{name}.proj_in", group_norm(w, f"{name}.norm", x, groups, 1e-6))
        y = y.reshape(x.shape[0], -1, x.shape[-1])
        z = layer_norm(w, f"{block}.norm1", y, 1e-5)
        y += attention(w, f"{block}.attn1", z, z)
        y += attention(w, f"{block}.attn2", layer_norm(w, f"{block}.norm2", y, 1e-5), text)
        z = linear(w, f"{block}.ff.net.0.proj", layer_norm(w, f"{block}.norm3", y, 1e-5))
        value, gate = jnp.split(z, 2, axis=-1)
        y += linear(w, f"{block}.ff.net.2", value * jax.nn.gelu(gate, approximate=False))
        return x + conv(w, f"{name}.proj_out", y.reshape(x.shape))

    def run(w: Weights, latents: jax.Array, steps: jax.Array, text: jax.Array) -> jax.Array:
        angles = steps[:, None].astype(np.float32) * frequencies
        time = jnp.concatenate([jnp.cos(angles), jnp.sin(angles)], axis=-1)
        time = jax.nn.silu(linear(w, "time_embedding.linear_1", time))
        time = jax.nn.silu(linear(w, "time_embedding.linear_2", time))

        def block(stage: Stage, index: int, x: jax.Array) -> jax.Array:
            name, epsilon = f"{stage.name}.resnets.{index}", config["norm_eps"]
            x = _residual(w, name, x, groups, epsilon, time)
            if index < sd_unet_architecture.transformers(stage):
                x = transformer(w, f"{stage.name}.attentions.{index}", x, text)
            return x

        x = conv(w, "conv_in", latents.transpose(0, 2, 3, 1))
        skips = [x]
        for stage in down:
            for index in range(len(stage.inputs)):
                x = block(stage, index, x)
                skips.append(x)
            if stage.resample:
                x = conv(w, sd_unet_architecture.resampler(stage), x, stride=2)
                skips.append(x)
        stage = sd_unet_architecture.mid_stage(config)
        for index in range(len(stage.inputs)):
            x = block(stage, index, x)
        for stage in up:
            for index in range(len(stage.inputs)):
                x = block(stage, index, jnp.concatenate([x, skips.pop()], axis=-1))
            if stage.resample:
                x = conv(w, sd_unet_architecture.resampler(stage), _doubled(x))
        x = group_norm(w, "conv_norm_out", x, groups, config["norm_eps"])
        return conv(w, "conv_out", jax.nn.silu(x)).transpose(0, 3, 1, 2)

    return run


def sd_vae(config: Config, attend: Attend) -> Network:
    groups, epsilon = config["norm_num_groups"], 1e-6

    def run(w: Weights, latents: jax.Array) -> jax.Array:
        x = conv(w, "post_quant_conv", latents.transpose(0, 2, 3, 1))
        x = conv(w, "decoder.conv_in", x)
        x = _residual(w, "decoder.mid_block.resnets.0", x, groups, epsilon)
        name = "decoder.mid_block.attentions.0"
        y = group_norm(w, f"{name}.group_norm", x, groups, epsilon)
        y = y.reshape(x.shape[0], -1, x.shape[-1])
        query, key, value = (heads(linear(w, f"{name}.to_{side}", y), 1) for side in "qkv")
        y = linear(w, f"{name}.to_out.0", merged(attend(query, key, value)))
        x = _residual(w, "decoder.mid_block.resnets.1", x + y.reshape(x.shape), groups, epsilon)
        for stage in sd_vae_architecture.stages(config):
            for index in range(len(stage.inputs)):
                x = _residual(w, f"{stage.name}.resnets.{index}", x, groups, epsilon)
            if stage.resample:
                x = conv(w, f"{stage.name}.upsamplers.0.conv", _doubled(x))
        x = jax.nn.silu(group_norm(w, "decoder.conv_norm_out", x, groups, epsilon))
        return conv(w, "decoder.conv_out", x).transpose(0, 3, 1, 2)

    return run


def _residual(
    w: Weights, name: str, x: jax.Array, groups: int, epsilon: float, time: jax.Array | None = None
) -> jax.Array:
    y = conv(w, f"{name}.conv1", jax.nn.silu(group_norm(w, f"{name}.norm1", x, groups, epsilon)))
    if time is not None:
        y += linear(w, f"{name}.time_emb_proj", time)[:, None, None, :]
    y = conv(w, f"{name}.conv2", jax.nn.silu(group_norm(w, f"{name}.norm2", y, groups, epsilon)))
    shortcut = f"{name}.conv_shortcut"
    return y + (conv(w, shortcut, x) if f"{shortcut}.weight" in w else x)


def _doubled(x: jax.Array) -> jax.Array:
    return jnp.repeat(jnp.repeat(x, 2, axis=1), 2, axis=2)
