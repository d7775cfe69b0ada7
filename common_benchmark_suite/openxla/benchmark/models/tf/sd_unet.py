"""The denoiser of Stable Diffusion in TensorFlow: our own Keras layers, channels-last."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from openxla.benchmark.models import shared_model
from openxla.benchmark.models.architectures import sd_unet
from openxla.benchmark.models.architectures.diffusion import Stage
from openxla.benchmark.models.tf import keras_model
from openxla.benchmark.models.tf.layers import (
    GroupNorm,
    Layer,
    LayerNorm,
    Linear,
    MultiHeadAttention,
    ResnetBlock,
    conv,
    to_channels_first,
    to_channels_last,
    upsample,
)
from openxla.benchmark.models.tf.operations import at_least_float32, gelu

# Epsilons of the transformer's norms, hard-coded in diffusers.
_GROUP_EPSILON, _LAYER_EPSILON = 1e-6, 1e-5


class Transformer(Layer):
    """Attention to pixels, attention to the text, feed-forward; all as one residual branch."""

    def __init__(self, width: int, config: Mapping[str, Any]) -> None:
        super().__init__()
        heads = config["attention_head_dim"]
        self.norm = GroupNorm(width, config["norm_num_groups"], _GROUP_EPSILON)
        self.proj_in = conv(width, width, 1)
        self.norm1 = LayerNorm(width, _LAYER_EPSILON)
        self.attn1 = MultiHeadAttention(width, heads, biases=())
        self.norm2 = LayerNorm(width, _LAYER_EPSILON)
        self.attn2 = MultiHeadAttention(
            width, heads, context_width=config["cross_attention_dim"], biases=()
        )
        self.norm3 = LayerNorm(width, _LAYER_EPSILON)
        self.up = Linear(width, 8 * width)
        self.down = Linear(4 * width, width)
        self.proj_out = conv(width, width, 1)

    def call(self, x: tf.Tensor, text: tf.Tensor) -> tf.Tensor:
        """[batch, height, width, channels], [batch, keys, context] -> as the first."""
        batch, height, width, channels = x.shape
        y = tf.reshape(self.proj_in(self.norm(x)), (batch, height * width, channels))
        z = self.norm1(y)
        y += self.attn1(z, z)
        y += self.attn2(self.norm2(y), text)
        # Half of the features gate the others (Shazeer 2020, arXiv:2002.05202).
        features, gates = tf.split(self.up(self.norm3(y)), 2, axis=-1)
        y += self.down(features * gelu(gates))
        return x + self.proj_out(tf.reshape(y, x.shape))


class UnetStage(Layer):
    """Residual blocks and transformers at one resolution, and the change to the next."""

    def __init__(self, stage: Stage, config: Mapping[str, Any]) -> None:
        super().__init__()
        self.down = stage.name.startswith("down")
        self.blocks = [
            ResnetBlock(
                inputs,
                stage.width,
                groups=config["norm_num_groups"],
                epsilon=config["norm_eps"],
                time_width=sd_unet.time_embedding_width(config),
            )
            for inputs in stage.inputs
        ]
        self.transformers = [
            Transformer(stage.width, config) for _ in range(sd_unet.transformers(stage))
        ]
        stride = 2 if self.down else 1
        self.resampler = (
            conv(stage.width, stage.width, 3, stride=stride) if stage.resample else None
        )

    def block(self, index: int, x: tf.Tensor, time: tf.Tensor, text: tf.Tensor) -> tf.Tensor:
        """Runs one residual block, and the transformer that follows it, if there is one."""
        x = self.blocks[index](x, time)
        return self.transformers[index](x, text) if index < len(self.transformers) else x

    def resample(self, x: tf.Tensor) -> tf.Tensor:
        """Halves or doubles height and width; only for stages with a resampler."""
        assert self.resampler is not None
        return self.resampler(x if self.down else upsample(x))


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
