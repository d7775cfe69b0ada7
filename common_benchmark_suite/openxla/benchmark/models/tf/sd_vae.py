"""The picture decoder of Stable Diffusion in TensorFlow: our own Keras layers, channels-last."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from openxla.benchmark.models import shared_model
from openxla.benchmark.models.architectures import sd_vae
from openxla.benchmark.models.architectures.diffusion import Stage
from openxla.benchmark.models.tf import keras_model
from openxla.benchmark.models.tf.layers import (
    GroupNorm,
    Layer,
    MultiHeadAttention,
    ResnetBlock,
    conv,
    to_channels_first,
    to_channels_last,
    upsample,
)

_EPSILON = 1e-6  # of the group norms; hard-coded in diffusers


class PixelAttention(MultiHeadAttention):
    """Attention of all pixels to each other, with a single head, and a residual sum."""

    def __init__(self, width: int, groups: int) -> None:
        super().__init__(width, 1)
        self.norm = GroupNorm(width, groups, _EPSILON)

    def call(self, x: tf.Tensor) -> tf.Tensor:  # type: ignore[override]
        """[batch, height, width, channels], same shape out."""
        batch, height, width, channels = x.shape
        y = tf.reshape(self.norm(x), (batch, height * width, channels))
        return x + tf.reshape(super().call(y, y), x.shape)


class Up(Layer):
    """Residual blocks at one resolution, and the change to the next."""

    def __init__(self, stage: Stage, groups: int) -> None:
        super().__init__()
        self.blocks = [
            ResnetBlock(inputs, stage.width, groups=groups, epsilon=_EPSILON)
            for inputs in stage.inputs
        ]
        self.resample = conv(stage.width, stage.width, 3) if stage.resample else None

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """[batch, height, width, inputs] -> [batch, height', width', stage.width]."""
        for block in self.blocks:
            x = block(x)
        return x if self.resample is None else self.resample(upsample(x))


class SdVae(Layer):
    """The decoder."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        latent, groups = config["latent_channels"], config["norm_num_groups"]
        first, *_, coarsest = config["block_out_channels"]
        self.latents = conv(latent, latent, 1)
        self.stem = conv(latent, coarsest, 3)
        self.mid_before, self.mid_after = (
            ResnetBlock(coarsest, coarsest, groups=groups, epsilon=_EPSILON) for _ in range(2)
        )
        self.mid_attention = PixelAttention(coarsest, groups)
        self.stages = [Up(stage, groups) for stage in sd_vae.stages(config)]
        self.norm = GroupNorm(first, groups, _EPSILON)
        self.output_ = conv(first, config["out_channels"], 3)

    def call(self, latents: tf.Tensor) -> tf.Tensor:
        """[batch, 4, height, width] -> pixels [batch, 3, height', width']."""
        x = self.stem(self.latents(to_channels_last(latents)))
        x = self.mid_after(self.mid_attention(self.mid_before(x)))
        for stage in self.stages:
            x = stage(x)
        return to_channels_first(self.output_(tf.nn.silu(self.norm(x))))


create_model = keras_model.creator(sd_vae.ARCHITECTURE, SdVae)


if __name__ == "__main__":
    shared_model.run_once(create_model, **sd_vae.ARCHITECTURE.example)
