"""The picture decoder of Stable Diffusion in JAX: flax.nnx modules of our own, channels-last."""

from collections.abc import Iterator, Mapping
from typing import Any

import jax
from flax import nnx

from openxla.benchmark.models import shared_model
from openxla.benchmark.models.architectures import sd_vae
from openxla.benchmark.models.architectures.diffusion import Stage
from openxla.benchmark.models.jax import weight_names
from openxla.benchmark.models.jax.attention import attention
from openxla.benchmark.models.jax.diffusion_layers import (
    ResnetBlock,
    conv,
    group_norm,
    resnet_weights,
    upsample,
)
from openxla.benchmark.models.jax.flax_model import FlaxModel, Weight

_EPSILON = 1e-6  # of the group norms; diffusers has it in its source, not in the configuration
_LINEARS = (("query", "to_q"), ("key", "to_k"), ("value", "to_v"), ("output", "to_out.0"))


class PixelAttention(nnx.Module):
    """Attention of all pixels to each other, with a single head, and a residual sum."""

    def __init__(self, width: int, groups: int, rngs: nnx.Rngs) -> None:
        self.norm = group_norm(width, groups, _EPSILON, rngs)
        self.query = nnx.Linear(width, width, rngs=rngs)
        self.key = nnx.Linear(width, width, rngs=rngs)
        self.value = nnx.Linear(width, width, rngs=rngs)
        self.output = nnx.Linear(width, width, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        """[batch, height, width, channels], same shape out."""
        batch, _, _, channels = x.shape
        y = self.norm(x).reshape(batch, -1, channels)
        y = self.output(attention(self.query(y), self.key(y), self.value(y), heads=1))
        return x + y.reshape(x.shape)


class Up(nnx.Module):
    """Residual blocks at one resolution, and the step to the next."""

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


def weights(config: Mapping[str, Any]) -> Iterator[Weight]:
    """Where each tensor of the checkpoint goes."""
    width = config["block_out_channels"][-1]
    middle = "decoder.mid_block"
    yield from weight_names.conv(("latents",), "post_quant_conv")
    yield from weight_names.conv(("stem",), "decoder.conv_in")
    for index, part in enumerate(("mid_before", "mid_after")):
        yield from resnet_weights((part,), f"{middle}.resnets.{index}", width, width, time=False)
    yield from weight_names.norm(("mid_attention", "norm"), f"{middle}.attentions.0.group_norm")
    for part, theirs in _LINEARS:
        yield from weight_names.linear(("mid_attention", part), f"{middle}.attentions.0.{theirs}")
    for index, stage in enumerate(sd_vae.stages(config)):
        for block, inputs in enumerate(stage.inputs):
            yield from resnet_weights(
                ("stages", index, "blocks", block),
                f"{stage.name}.resnets.{block}",
                inputs,
                stage.width,
                time=False,
            )
        if stage.resample:
            yield from weight_names.conv(
                ("stages", index, "resample"), f"{stage.name}.upsamplers.0.conv"
            )
    yield from weight_names.norm(("norm",), "decoder.conv_norm_out")
    yield from weight_names.conv(("output",), "decoder.conv_out")


def create_model(
    batch_size: int = 1,
    data_type: str = "fp32",
    model_name: str = "sd-vae",
    **parameters: Any,
) -> FlaxModel:
    """Returns the decoder on the checkpoint of `model_name`.

    Input: latents [batch, 4, height, width]; output: pixels [batch, 3, height', width']. Further
    parameter: `seed` of the checkpoint.
    """
    given = {
        "batch_size": batch_size,
        "data_type": data_type,
        "model_name": model_name,
        **parameters,
    }
    return FlaxModel(sd_vae.ARCHITECTURE, given, SdVae, weights)


if __name__ == "__main__":
    shared_model.run_once(create_model, batch_size=1, data_type="fp32", model_name="sd-vae-tiny")
