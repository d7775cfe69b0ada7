"""The denoiser of Stable Diffusion in JAX: our own flax.nnx modules, channels-last."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from openxla.benchmark.models import shared_model
from openxla.benchmark.models.architectures import sd_unet
from openxla.benchmark.models.architectures.diffusion import Stage
from openxla.benchmark.models.jax import flax_model
from openxla.benchmark.models.jax.layers import (
    Linear,
    MultiHeadAttention,
    ResnetBlock,
    conv,
    group_norm,
    layer_norm,
    upsample,
)

# Epsilons of the transformer's norms, hard-coded in diffusers.
_GROUP_EPSILON, _LAYER_EPSILON = 1e-6, 1e-5


class Transformer(nnx.Module):
    """Attention to pixels, attention to the text, feed-forward; all as one residual branch."""

    def __init__(self, width: int, config: Mapping[str, Any], rngs: nnx.Rngs) -> None:
        heads = config["attention_head_dim"]
        self.norm = group_norm(width, config["norm_num_groups"], _GROUP_EPSILON, rngs)
        self.proj_in = conv(width, width, 1, rngs)
        self.norm1, self.norm2, self.norm3 = (
            layer_norm(width, _LAYER_EPSILON, rngs) for _ in range(3)
        )
        self.attn1 = MultiHeadAttention(width, heads, rngs, biases=())
        self.attn2 = MultiHeadAttention(
            width, heads, rngs, context_width=config["cross_attention_dim"], biases=()
        )
        self.up = Linear(width, 8 * width, rngs=rngs)
        self.down = Linear(4 * width, width, rngs=rngs)
        self.proj_out = conv(width, width, 1, rngs)

    def __call__(self, x: jax.Array, text: jax.Array) -> jax.Array:
        """[batch, height, width, channels], [batch, keys, context] -> as the first."""
        batch, _, _, channels = x.shape
        y = self.proj_in(self.norm(x)).reshape(batch, -1, channels)
        z = self.norm1(y)
        y = y + self.attn1(z, z)
        y = y + self.attn2(self.norm2(y), text)
        # Half of the features gate the others (Shazeer 2020, arXiv:2002.05202).
        half = 4 * channels
        z = self.up(self.norm3(y))
        y = y + self.down(z[..., :half] * jax.nn.gelu(z[..., half:], approximate=False))
        return x + self.proj_out(y.reshape(x.shape))


class UnetStage(nnx.Module):
    """Residual blocks and transformers at one resolution, and the change to the next."""

    def __init__(self, stage: Stage, config: Mapping[str, Any], rngs: nnx.Rngs) -> None:
        self.down = stage.name.startswith("down")
        self.blocks = nnx.List(
            [
                ResnetBlock(
                    inputs,
                    stage.width,
                    groups=config["norm_num_groups"],
                    epsilon=config["norm_eps"],
                    time_width=sd_unet.time_embedding_width(config),
                    rngs=rngs,
                )
                for inputs in stage.inputs
            ]
        )
        self.transformers = nnx.List(
            [Transformer(stage.width, config, rngs) for _ in range(sd_unet.transformers(stage))]
        )
        stride = 2 if self.down else 1
        self.resampler = (
            nnx.data(conv(stage.width, stage.width, 3, rngs, strides=stride))
            if stage.resample
            else None
        )

    def block(self, index: int, x: jax.Array, time: jax.Array, text: jax.Array) -> jax.Array:
        """Runs one residual block, and the transformer that follows it, if there is one."""
        x = self.blocks[index](x, time)
        return self.transformers[index](x, text) if index < len(self.transformers) else x

    def resample(self, x: jax.Array) -> jax.Array:
        """Halves or doubles height and width; only for stages with a resampler."""
        assert self.resampler is not None
        return self.resampler(x if self.down else upsample(x))


class SdUnet(nnx.Module):
    """Downsampling path, middle, and upsampling path with skip connections."""

    def __init__(self, config: Mapping[str, Any], rngs: nnx.Rngs) -> None:
        first, time_width = config["block_out_channels"][0], sd_unet.time_embedding_width(config)
        self.frequencies = tuple(sd_unet.timestep_frequencies(config))
        self.time1 = Linear(first, time_width, rngs=rngs)
        self.time2 = Linear(time_width, time_width, rngs=rngs)
        self.stem = conv(config["in_channels"], first, 3, rngs)
        self.down, self.up = (
            nnx.List([UnetStage(stage, config, rngs) for stage in stages])
            for stages in (sd_unet.down_stages(config), sd_unet.up_stages(config))
        )
        self.mid = UnetStage(sd_unet.mid_stage(config), config, rngs)
        self.norm = group_norm(first, config["norm_num_groups"], config["norm_eps"], rngs)
        self.output = conv(first, config["out_channels"], 3, rngs)

    def time_embedding(self, timesteps: jax.Array, dtype: jnp.dtype[Any]) -> jax.Array:
        """i32[batch] -> [batch, time_width] of the given type."""
        wide = jnp.promote_types(dtype, jnp.float32)
        angles = timesteps[:, None].astype(wide) * jnp.array(self.frequencies, wide)
        waves = jnp.concatenate([jnp.cos(angles), jnp.sin(angles)], axis=-1).astype(dtype)
        return self.time2(jax.nn.silu(self.time1(waves)))

    def __call__(self, latents: jax.Array, timesteps: jax.Array, text: jax.Array) -> jax.Array:
        """[batch, 4, size, size], i32[batch], [batch, 77, context] -> as the first."""
        time = self.time_embedding(timesteps, latents.dtype)
        x = self.stem(latents.transpose(0, 2, 3, 1))
        skips = [x]
        for stage in self.down:
            for index in range(len(stage.blocks)):
                x = stage.block(index, x, time, text)
                skips.append(x)
            if stage.resampler is not None:
                x = stage.resample(x)
                skips.append(x)
        for index in range(len(self.mid.blocks)):
            x = self.mid.block(index, x, time, text)
        for stage in self.up:
            for index in range(len(stage.blocks)):
                x = stage.block(index, jnp.concatenate([x, skips.pop()], axis=-1), time, text)
            if stage.resampler is not None:
                x = stage.resample(x)
        return self.output(jax.nn.silu(self.norm(x))).transpose(0, 3, 1, 2)


create_model = flax_model.creator(sd_unet.ARCHITECTURE, SdUnet)


if __name__ == "__main__":
    shared_model.run_once(create_model, **sd_unet.ARCHITECTURE.example)
