"""The picture decoder of Stable Diffusion in JAX: our own flax.nnx modules, channels-last."""

from collections.abc import Mapping
from typing import Any

import jax
from flax import nnx

from openxla.benchmark.models import shared_model
from openxla.benchmark.models.architectures import sd_vae
from openxla.benchmark.models.architectures.diffusion import Stage
from openxla.benchmark.models.jax import flax_model
from openxla.benchmark.models.jax.layers import (
    MultiHeadAttention,
    ResnetBlock,
    conv,
    group_norm,
    upsample,
)

_EPSILON = 1e-6  # of the group norms; hard-coded in diffusers


class PixelAttention(MultiHeadAttention):
    """Attention of all pixels to each other, with a single head, and a residual sum."""

    def __init__(self, width: int, groups: int, rngs: nnx.Rngs) -> None:
        super().__init__(width, 1, rngs)
        self.norm = group_norm(width, groups, _EPSILON, rngs)

    def __call__(self, x: jax.Array) -> jax.Array:  # type: ignore[override]
        """[batch, height, width, channels], same shape out."""
        batch, _, _, channels = x.shape
        y = self.norm(x).reshape(batch, -1, channels)
        return x + super().__call__(y, y).reshape(x.shape)


class Up(nnx.Module):
    """Residual blocks at one resolution, and the change to the next."""

    def __init__(self, stage: Stage, groups: int, rngs: nnx.Rngs) -> None:
        self.blocks = nnx.List(
            [
                ResnetBlock(inputs, stage.width, groups=groups, epsilon=_EPSILON, rngs=rngs)
                for inputs in stage.inputs
            ]
        )
        self.resample = (
            nnx.data(conv(stage.width, stage.width, 3, rngs)) if stage.resample else None
        )

    def __call__(self, x: jax.Array) -> jax.Array:
        """[batch, height, width, inputs] -> [batch, height', width', stage.width]."""
        for block in self.blocks:
            x = block(x)
        return x if self.resample is None else self.resample(upsample(x))


class SdVae(nnx.Module):
    """The decoder."""

    def __init__(self, config: Mapping[str, Any], rngs: nnx.Rngs) -> None:
        latent, groups = config["latent_channels"], config["norm_num_groups"]
        first, *_, last = config["block_out_channels"]
        self.latents = conv(latent, latent, 1, rngs)
        self.stem = conv(latent, last, 3, rngs)
        self.mid_before = ResnetBlock(last, last, groups=groups, epsilon=_EPSILON, rngs=rngs)
        self.mid_attention = PixelAttention(last, groups, rngs)
        self.mid_after = ResnetBlock(last, last, groups=groups, epsilon=_EPSILON, rngs=rngs)
        self.stages = nnx.List([Up(stage, groups, rngs) for stage in sd_vae.stages(config)])
        self.norm = group_norm(first, groups, _EPSILON, rngs)
        self.output = conv(first, config["out_channels"], 3, rngs)

    def __call__(self, latents: jax.Array) -> jax.Array:
        """[batch, 4, height, width] -> pixels [batch, 3, height', width']."""
        x = self.stem(self.latents(latents.transpose(0, 2, 3, 1)))
        x = self.mid_after(self.mid_attention(self.mid_before(x)))
        for stage in self.stages:
            x = stage(x)
        return self.output(jax.nn.silu(self.norm(x))).transpose(0, 3, 1, 2)


create_model = flax_model.creator(sd_vae.ARCHITECTURE, SdVae)


if __name__ == "__main__":
    shared_model.run_once(create_model, **sd_vae.ARCHITECTURE.example)
