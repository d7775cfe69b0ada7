"""Stable Diffusion in JAX, from text to picture: one program with a loop."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from openxla.benchmark.models import shared_model
from openxla.benchmark.models.architectures import sd_pipeline
from openxla.benchmark.models.jax import flax_model, sd_clip, sd_unet, sd_vae
from openxla.benchmark.models.jax.causal_lm import at_least_float32


class SdPipeline(nnx.Module):
    """Text encoder, steps of the denoiser, picture decoder."""

    def __init__(self, config: Mapping[str, Any], rngs: nnx.Rngs) -> None:
        self.text_encoder = sd_clip.SdClip(config["text_encoder"], rngs)
        self.unet = sd_unet.SdUnet(config["unet"], rngs)
        self.vae = sd_vae.SdVae(config["vae"], rngs)
        steps = sd_pipeline.steps(config)
        self.timesteps = tuple(step.timestep for step in steps)
        self.keep = tuple(step.keep for step in steps)
        self.add = tuple(step.add for step in steps)
        self.guidance_scale = config["guidance_scale"]
        self.scaling_factor = config["scaling_factor"]

    def __call__(
        self, input_ids: jax.Array, negative_ids: jax.Array, latents: jax.Array
    ) -> jax.Array:
        """i32[batch, seq], the same, [batch, 4, size, size] -> pixels [batch, 3, height, width]."""
        batch, dtype = input_ids.shape[0], latents.dtype
        wide = jnp.promote_types(dtype, jnp.float32)
        text = self.text_encoder(jnp.concatenate([negative_ids, input_ids]))

        def denoise(
            latents: jax.Array, step: tuple[jax.Array, jax.Array, jax.Array]
        ) -> tuple[jax.Array, None]:
            """Takes one step; guidance and sum are at least float32."""
            timestep, keep, add = step
            timesteps = jnp.broadcast_to(timestep, 2 * batch)
            noise = self.unet(jnp.concatenate([latents, latents]), timesteps, text)
            avoided, wanted = jnp.split(noise.astype(wide), 2)
            noise = avoided + self.guidance_scale * (wanted - avoided)
            return (keep * latents.astype(wide) + add * noise).astype(dtype), None

        steps = (
            jnp.asarray(self.timesteps, jnp.int32),
            jnp.asarray(self.keep, wide),
            jnp.asarray(self.add, wide),
        )
        latents, _ = jax.lax.scan(denoise, latents, steps)
        return self.vae((at_least_float32(latents) / self.scaling_factor).astype(dtype))


create_model = flax_model.creator(sd_pipeline.ARCHITECTURE, SdPipeline)


if __name__ == "__main__":
    shared_model.run_once(create_model, **sd_pipeline.ARCHITECTURE.example)
