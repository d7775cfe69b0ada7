"""The denoiser of Stable Diffusion in JAX: our own flax.nnx modules, channels-last."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from openxla.benchmark.models import shared_model
from openxla.benchmark.models.architectures import sd_unet
from openxla.benchmark.models.jax import flax_model
from openxla.benchmark.models.jax.diffusion_layers import conv, group_norm
from openxla.benchmark.models.jax.layers import Linear
from openxla.benchmark.models.jax.sd_unet.unet_layers import UnetStage


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
