"""The decoder of Stable Diffusion 1's variational autoencoder: latents to a picture.

Rombach et al. 2021 (arXiv:2112.10752); the encoder is not used for making pictures from a text.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from openxla.benchmark.def_types import Parameters, TensorSpec
from openxla.benchmark.models.architectures import diffusion, layers
from openxla.benchmark.models.architectures.base import Arrays, TensorInit, integer, tensor
from openxla.benchmark.models.architectures.diffusion import Stage

_CHANNELS = "latent_channels"


def _config(picture_size: int, widths: list[int], depth: int, groups: int) -> Mapping[str, Any]:
    return {
        "_class_name": "AutoencoderKL",
        "act_fn": "silu",
        "block_out_channels": widths,
        "down_block_types": ["DownEncoderBlock2D"] * len(widths),
        "in_channels": 3,
        "latent_channels": 4,
        "layers_per_block": depth,
        "norm_num_groups": groups,
        "out_channels": 3,
        "sample_size": picture_size,
        "up_block_types": ["UpDecoderBlock2D"] * len(widths),
    }


class SdVae(diffusion.LatentArchitecture):
    """Input: latents [batch, 4, height, width]; output: a picture, scale times as large."""

    name = "sd_vae"
    version = 1
    configs = {
        "sd-vae-tiny": _config(16, [16, 32], 1, groups=8),
        "sd-vae": _config(512, [128, 256, 512, 512], 2, groups=32),
    }

    standard = {"model_name": "sd-vae"}
    example = {"model_name": "sd-vae-tiny"}
    module_names = (
        (r"^post_quant_conv\b", "latents"),
        (r"^decoder\.", ""),
        (r"^conv_in\b", "stem"),
        (r"^mid_block\.resnets\.0\b", "mid_before"),
        (r"^mid_block\.resnets\.1\b", "mid_after"),
        (r"^mid_block\.attentions\.0\b", "mid_attention"),
        (r"\bgroup_norm\b", "norm"),
        (r"^up_blocks\b", "stages"),
        *diffusion.MODULE_NAMES,
        (r"\bupsamplers\.0\.conv\b", "resample"),
        (r"^conv_norm_out\b", "norm"),
        (r"^conv_out\b", "output"),
    )

    def tensors(self, config: Mapping[str, Any]) -> Iterable[TensorInit]:
        """See `Architecture.tensors`; names as in diffusers' `AutoencoderKL`."""
        latent, widths = config[_CHANNELS], config["block_out_channels"]
        middle = "decoder.mid_block"
        yield from layers.conv("post_quant_conv", latent, latent, 1, 1)
        yield from layers.conv("decoder.conv_in", latent, widths[-1], 3, 3)
        for index in range(2):
            yield from diffusion.resnet_block(f"{middle}.resnets.{index}", widths[-1], widths[-1])
        yield from layers.norm(f"{middle}.attentions.0.group_norm", widths[-1])
        yield from diffusion.attention(
            f"{middle}.attentions.0", widths[-1], widths[-1], qkv_bias=True
        )
        for stage in stages(config):
            for index, inputs in enumerate(stage.inputs):
                name = f"{stage.name}.resnets.{index}"
                yield from diffusion.resnet_block(name, inputs, stage.width)
            if stage.resample:
                name = f"{stage.name}.upsamplers.0.conv"
                yield from layers.conv(name, stage.width, stage.width, 3, 3)
        gain = layers.AFTER_ACTIVATION_GAIN
        yield from layers.norm("decoder.conv_norm_out", widths[0])
        yield from layers.conv(
            "decoder.conv_out", widths[0], config["out_channels"], 3, 3, gain=gain
        )

    def input_specs(self, parameters: Parameters) -> tuple[TensorSpec, ...]:
        """Latents, already divided by the scaling factor, [batch, 4, height, width]."""
        config = self.config_of(parameters)
        size = config["sample_size"] // 2 ** (len(config["block_out_channels"]) - 1)
        batch = integer(parameters, "batch_size")
        return (tensor(parameters, batch, config[_CHANNELS], size, size),)

    def output_specs(self, parameters: Parameters) -> tuple[TensorSpec, ...]:
        """Pixels, [batch, 3, height, width]."""
        config, batch = self.config_of(parameters), integer(parameters, "batch_size")
        return (tensor(parameters, *diffusion.latent_shape(config, batch, "out_channels")),)

    def preprocess(self, raw_input: Any, parameters: Parameters, checkpoint: Path) -> Arrays:
        """Makes latents of unit variance."""
        from openxla.benchmark.models import preprocessing

        (latents,) = self.input_specs(parameters)
        dtype = preprocessing.numpy_dtype(latents.dtype)
        return (diffusion.noise("latents", latents.shape, seed=raw_input).astype(dtype),)


def stages(config: Mapping[str, Any]) -> list[Stage]:
    """Returns the stages of the decoder, the coarsest first."""
    widths, depth = config["block_out_channels"], config["layers_per_block"]
    stages, channels = [], widths[-1]
    for index, width in enumerate(reversed(widths)):
        stages.append(
            Stage(
                name=f"decoder.up_blocks.{index}",
                inputs=(channels, *[width] * depth),
                width=width,
                resample=index + 1 < len(widths),
            )
        )
        channels = width
    return stages


ARCHITECTURE = SdVae()
