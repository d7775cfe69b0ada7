"""The denoiser of Stable Diffusion in TensorFlow: our own Keras layers, channels-last."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from openxla.benchmark.models import shared_model
from openxla.benchmark.models.architectures import sd_unet
from openxla.benchmark.models.tf import keras_model
from openxla.benchmark.models.tf.diffusion_layers import (
    GroupNorm,
    conv,
    to_channels_first,
    to_channels_last,
)
from openxla.benchmark.models.tf.layers import Layer, Linear
from openxla.benchmark.models.tf.products import at_least_float32
from openxla.benchmark.models.tf.sd_unet.unet_layers import UnetStage


class SdUnet(Layer):
    """Downsampling path, middle, and upsampling path with skip connections."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        first, time_width = config["block_out_channels"][0], sd_unet.time_embedding_width(config)
        self.frequencies = sd_unet.timestep_frequencies(config)
        self.time1 = Linear(first, time_width)
        self.time2 = Linear(time_width, time_width)
        self.stem = conv(config["in_channels"], first, 3)
        self.down, self.up = (
            [UnetStage(stage, config) for stage in stages]
            for stages in (sd_unet.down_stages(config), sd_unet.up_stages(config))
        )
        self.mid = UnetStage(sd_unet.mid_stage(config), config)
        self.norm = GroupNorm(first, config["norm_num_groups"], config["norm_eps"])
        self.output_ = conv(first, config["out_channels"], 3)

    def time_embedding(self, timesteps: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
        """i32[batch] -> [batch, time_width] of the given type."""
        wide = at_least_float32(dtype)
        angles = tf.cast(timesteps, wide)[:, tf.newaxis] * tf.constant(list(self.frequencies), wide)
        waves = tf.cast(tf.concat([tf.cos(angles), tf.sin(angles)], axis=-1), dtype)
        return self.time2(tf.nn.silu(self.time1(waves)))

    def call(self, latents: tf.Tensor, timesteps: tf.Tensor, text: tf.Tensor) -> tf.Tensor:
        """[batch, 4, size, size], i32[batch], [batch, keys, context] -> as the first."""
        time = self.time_embedding(timesteps, latents.dtype)
        x = self.stem(to_channels_last(latents))
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
                x = stage.block(index, tf.concat([x, skips.pop()], axis=-1), time, text)
            if stage.resampler is not None:
                x = stage.resample(x)
        return to_channels_first(self.output_(tf.nn.silu(self.norm(x))))


create_model = keras_model.creator(sd_unet.ARCHITECTURE, SdUnet)


if __name__ == "__main__":
    shared_model.run_once(create_model, **sd_unet.ARCHITECTURE.example)
