"""The denoiser of Stable Diffusion in TensorFlow: Keras layers of our own, channels-last."""

from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow as tf

from openxla.benchmark.models import shared_model
from openxla.benchmark.models.architectures import sd_unet
from openxla.benchmark.models.tf import weight_names
from openxla.benchmark.models.tf.diffusion_layers import (
    GroupNorm,
    conv,
    to_channels_first,
    to_channels_last,
)
from openxla.benchmark.models.tf.keras_model import KerasModel, Weight
from openxla.benchmark.models.tf.layers import Layer, Linear, at_least_float32
from openxla.benchmark.models.tf.sd_unet.unet_layers import UnetStage, stage_weights


class SdUnet(Layer):
    """The way down, the middle, the way up with the outputs of the way down."""

    def __init__(self, config: Mapping[str, Any], _dtype: str) -> None:
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
        self.last = conv(first, config["out_channels"], 3)

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
        return to_channels_first(self.last(tf.nn.silu(self.norm(x))))


def weights(config: Mapping[str, Any]) -> Iterator[Weight]:
    """Where each tensor of the checkpoint goes."""
    for index in (1, 2):
        yield from weight_names.linear(f"time{index}", f"time_embedding.linear_{index}")
    yield from weight_names.conv("stem", "conv_in")
    for index, stage in enumerate(sd_unet.down_stages(config)):
        yield from stage_weights(f"down/{index}", stage)
    yield from stage_weights("mid", sd_unet.mid_stage(config))
    for index, stage in enumerate(sd_unet.up_stages(config)):
        yield from stage_weights(f"up/{index}", stage)
    yield from weight_names.norm("norm", "conv_norm_out")
    yield from weight_names.conv("last", "conv_out")


def create_model(
    batch_size: int = 1,
    data_type: str = "fp32",
    model_name: str = "sd-unet",
    **parameters: Any,
) -> KerasModel:
    """Returns the denoiser on the checkpoint of `model_name`.

    Inputs: latents [batch, 4, size, size], timesteps i32[batch], text [batch, 77, context]; output:
    the predicted noise, of the latents' shape. Further parameter: `seed` of the checkpoint.
    """
    given = {
        "batch_size": batch_size,
        "data_type": data_type,
        "model_name": model_name,
        **parameters,
    }
    return KerasModel(sd_unet.ARCHITECTURE, given, SdUnet, weights)


if __name__ == "__main__":
    shared_model.run_once(create_model, batch_size=1, data_type="fp32", model_name="sd-unet-tiny")
