"""The transformer and the stages of Stable Diffusion's denoiser in TensorFlow."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from openxla.benchmark.models.architectures import sd_unet
from openxla.benchmark.models.architectures.diffusion import Stage
from openxla.benchmark.models.tf.activations import gelu
from openxla.benchmark.models.tf.attention import MultiHeadAttention
from openxla.benchmark.models.tf.diffusion_layers import (
    GroupNorm,
    ResnetBlock,
    conv,
    upsample,
)
from openxla.benchmark.models.tf.layers import Layer, LayerNorm, Linear

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
