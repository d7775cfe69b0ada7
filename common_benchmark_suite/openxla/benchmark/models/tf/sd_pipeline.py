"""Stable Diffusion in TensorFlow, from text to picture: one program with a loop."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from openxla.benchmark.models import shared_model
from openxla.benchmark.models.architectures import sd_pipeline
from openxla.benchmark.models.tf import keras_model, sd_clip, sd_unet, sd_vae
from openxla.benchmark.models.tf.causal_lm import widened
from openxla.benchmark.models.tf.layers import Layer


class SdPipeline(Layer):
    """Text encoder, steps of the denoiser, picture decoder."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        self.text_encoder = sd_clip.SdClip(config["text_encoder"])
        self.unet = sd_unet.SdUnet(config["unet"])
        self.vae = sd_vae.SdVae(config["vae"])
        self.steps = tuple(sd_pipeline.steps(config))
        self.guidance_scale = config["guidance_scale"]
        self.scaling_factor = config["scaling_factor"]

    def call(self, input_ids: tf.Tensor, negative_ids: tf.Tensor, latents: tf.Tensor) -> tf.Tensor:
        """i32[batch, seq], the same, [batch, 4, size, size] -> pixels [batch, 3, height, width]."""
        batch, dtype = input_ids.shape[0], latents.dtype
        text = self.text_encoder(tf.concat([negative_ids, input_ids], axis=0))
        timesteps = tf.constant([step.timestep for step in self.steps], tf.int32)
        wide = widened(latents).dtype
        keep = tf.constant([step.keep for step in self.steps], wide)
        add = tf.constant([step.add for step in self.steps], wide)

        def denoise(index: tf.Tensor, latents: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            """Takes one step; guidance and sum are at least float32."""
            # Gathered, not sliced: OpenVINO 2026.4 has no executor for a slice in a loop.
            timestep, kept, added = (tf.gather(row, index) for row in (timesteps, keep, add))
            both = tf.concat([latents, latents], axis=0)
            noise = widened(self.unet(both, tf.fill((2 * batch,), timestep), text))
            avoided, wanted = tf.split(noise, 2)
            noise = avoided + self.guidance_scale * (wanted - avoided)
            after = kept * widened(latents) + added * noise
            return index + 1, tf.cast(after, dtype)

        _, latents = tf.while_loop(
            lambda index, _: index < len(self.steps),
            denoise,
            (tf.constant(0, tf.int32), latents),
            maximum_iterations=len(self.steps),
        )
        return self.vae(tf.cast(widened(latents) / self.scaling_factor, dtype))


create_model = keras_model.creator(sd_pipeline.ARCHITECTURE, SdPipeline)


if __name__ == "__main__":
    shared_model.run_once(create_model, **sd_pipeline.ARCHITECTURE.example)
