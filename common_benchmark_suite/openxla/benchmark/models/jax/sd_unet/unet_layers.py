"""The transformer and the stages of Stable Diffusion's denoiser in JAX."""

from collections.abc import Mapping
from typing import Any

import jax
from flax import nnx

from openxla.benchmark.models.architectures import sd_unet
from openxla.benchmark.models.architectures.diffusion import Stage
from openxla.benchmark.models.jax.attention import MultiHeadAttention, layer_norm
from openxla.benchmark.models.jax.diffusion_layers import (
    ResnetBlock,
    conv,
    group_norm,
    upsample,
)
from openxla.benchmark.models.jax.layers import Linear

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
            nnx.data(conv(stage.width, stage.width, 3, rngs, stride=stride))
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
