"""The denoiser of Stable Diffusion 1: a U-Net with cross-attention to a text.

Rombach et al. 2021 (arXiv:2112.10752), in the configuration of Stable Diffusion 1.4 and 1.5.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from openxla.benchmark.def_types import Parameters, TensorSpec
from openxla.benchmark.models.architectures import diffusion, layers
from openxla.benchmark.models.architectures.base import Arrays, TensorInit, integer, tensor
from openxla.benchmark.models.architectures.diffusion import Stage

_TEXT_LENGTH = 77
# The first of 50 steps of the schedule; each further row is one step later.
_FIRST_TIMESTEP, _TIMESTEP_STRIDE, _TIMESTEPS = 981, 20, 1000


def _config(
    size: int, widths: list[int], depth: int, heads: int, context: int, groups: int
) -> Mapping[str, Any]:
    last = len(widths) - 1
    return {
        "_class_name": "UNet2DConditionModel",
        "act_fn": "silu",
        # The number of heads, not their width: a misnomer that diffusers keeps.
        "attention_head_dim": heads,
        "block_out_channels": widths,
        "center_input_sample": False,
        "cross_attention_dim": context,
        "down_block_types": ["CrossAttnDownBlock2D"] * last + ["DownBlock2D"],
        "downsample_padding": 1,
        "flip_sin_to_cos": True,
        "freq_shift": 0,
        "in_channels": 4,
        "layers_per_block": depth,
        "mid_block_scale_factor": 1,
        "norm_eps": 1e-5,
        "norm_num_groups": groups,
        "out_channels": 4,
        "sample_size": size,
        "up_block_types": ["UpBlock2D"] + ["CrossAttnUpBlock2D"] * last,
    }


class SdUnet(diffusion.LatentArchitecture):
    """Inputs: latents [batch, 4, size, size], timesteps i32[batch], text [batch, 77, context].

    Output: the predicted noise, of the latents' shape.
    """

    name = "sd_unet"
    version = 1
    configs = {
        "sd-unet-tiny": _config(16, [32, 64], 1, heads=2, context=64, groups=8),
        "sd-unet": _config(64, [320, 640, 1280, 1280], 2, heads=8, context=768, groups=32),
    }

    standard = {"model_name": "sd-unet"}
    example = {"model_name": "sd-unet-tiny"}
    module_names = (
        (r"\btransformer_blocks\.0\.", ""),
        (r"^(down|up)_blocks\b", r"\1"),
        (r"^mid_block\b", "mid"),
        *diffusion.MODULE_NAMES,
        (r"\battentions\b", "transformers"),
        (r"\b(down|up)samplers\.0\.conv\b", "resampler"),
        (r"^time_embedding\.linear_(\d)\b", r"time\1"),
        (r"\btime_emb_proj\b", "time"),
        (r"\bff\.net\.0\.proj\b", "up"),
        (r"\bff\.net\.2\b", "down"),
        (r"^conv_in\b", "stem"),
        (r"^conv_norm_out\b", "norm"),
        (r"^conv_out\b", "output"),
    )

    def tensors(self, config: Mapping[str, Any]) -> Iterable[TensorInit]:
        """See `Architecture.tensors`; names as in diffusers' `UNet2DConditionModel`."""
        first, time_width = config["block_out_channels"][0], time_embedding_width(config)
        gain = layers.AFTER_ACTIVATION_GAIN
        yield from layers.conv("conv_in", config["in_channels"], first, 3, 3)
        # Sines and cosines have a root mean square of 0.7.
        yield from layers.linear("time_embedding.linear_1", first, time_width, gain=1.4)
        yield from layers.linear("time_embedding.linear_2", time_width, time_width, gain=gain)
        for stage in (*down_stages(config), mid_stage(config), *up_stages(config)):
            yield from self._stage(stage, config)
        yield from layers.norm("conv_norm_out", first)
        yield from layers.conv("conv_out", first, config["out_channels"], 3, 3, gain=gain)

    def _stage(self, stage: Stage, config: Mapping[str, Any]) -> Iterator[TensorInit]:
        name, width = stage.name, stage.width
        for index, inputs in enumerate(stage.inputs):
            yield from diffusion.resnet_block(
                f"{name}.resnets.{index}", inputs, width, time_embedding_width(config)
            )
        for index in range(transformers(stage)):
            context = config["cross_attention_dim"]
            yield from self._transformer(f"{name}.attentions.{index}", width, context)
        if stage.resample:
            yield from layers.conv(resampler(stage), width, width, 3, 3)

    def _transformer(self, name: str, width: int, context: int) -> Iterator[TensorInit]:
        block = f"{name}.transformer_blocks.0"
        yield from layers.norm(f"{name}.norm", width)
        yield from layers.conv(f"{name}.proj_in", width, width, 1, 1)
        for index, keys in ((1, width), (2, context)):
            yield from layers.norm(f"{block}.norm{index}", width)
            yield from diffusion.attention(f"{block}.attn{index}", width, keys, qkv_bias=False)
        yield from layers.norm(f"{block}.norm3", width)
        yield from layers.linear(f"{block}.ff.net.0.proj", width, 8 * width)
        yield from layers.linear(
            f"{block}.ff.net.2", 4 * width, width, gain=layers.AFTER_ACTIVATION_GAIN
        )
        yield from layers.conv(f"{name}.proj_out", width, width, 1, 1, gain=0.5)

    def input_specs(self, parameters: Parameters) -> tuple[TensorSpec, ...]:
        """Latents [batch, 4, size, size], timesteps i32[batch], text [batch, 77, context]."""
        config, batch = self.config_of(parameters), integer(parameters, "batch_size")
        return (
            tensor(parameters, *diffusion.latent_shape(config, batch, "in_channels")),
            TensorSpec(shape=(batch,), dtype="i32"),
            tensor(parameters, batch, _TEXT_LENGTH, config["cross_attention_dim"]),
        )

    def output_specs(self, parameters: Parameters) -> tuple[TensorSpec, ...]:
        """The predicted noise, of the latents' shape."""
        config, batch = self.config_of(parameters), integer(parameters, "batch_size")
        return (tensor(parameters, *diffusion.latent_shape(config, batch, "out_channels")),)

    def preprocess(self, raw_input: Any, parameters: Parameters, checkpoint: Path) -> Arrays:
        """Makes latents and text embeddings of unit variance, and a timestep for each row."""
        import numpy as np

        from openxla.benchmark.models import preprocessing

        latents, timesteps, text = self.input_specs(parameters)
        dtype = preprocessing.numpy_dtype(latents.dtype)
        rows = np.arange(timesteps.shape[0])
        steps = (_FIRST_TIMESTEP - _TIMESTEP_STRIDE * rows) % _TIMESTEPS
        return (
            diffusion.noise("latents", latents.shape, seed=raw_input).astype(dtype),
            steps.astype(np.int32),
            diffusion.noise("text", text.shape, seed=raw_input).astype(dtype),
        )


def down_stages(config: Mapping[str, Any]) -> list[Stage]:
    """Returns the stages of the downsampling path, the finest first."""
    widths, depth = config["block_out_channels"], config["layers_per_block"]
    stages, channels = [], widths[0]
    for index, (kind, width) in enumerate(zip(config["down_block_types"], widths, strict=True)):
        stages.append(
            Stage(
                name=f"down_blocks.{index}",
                inputs=(channels, *[width] * (depth - 1)),
                width=width,
                attention=kind.startswith("CrossAttn"),
                resample=index + 1 < len(widths),
            )
        )
        channels = width
    return stages


def mid_stage(config: Mapping[str, Any]) -> Stage:
    """Returns the coarsest stage: block, transformer, block."""
    width = config["block_out_channels"][-1]
    return Stage(
        name="mid_block", inputs=(width, width), width=width, attention=True, resample=False
    )


def up_stages(config: Mapping[str, Any]) -> list[Stage]:
    """Returns the stages of the upsampling path, the coarsest first.

    Each of their blocks also takes an output of the downsampling path: the last unused one.
    """
    widths, depth = config["block_out_channels"], config["layers_per_block"]
    skips = [widths[0]]
    for stage in down_stages(config):
        skips += [stage.width] * (depth + stage.resample)
    stages, channels = [], widths[-1]
    kinds = zip(config["up_block_types"], reversed(widths), strict=True)
    for index, (kind, width) in enumerate(kinds):
        before = (channels, *[width] * depth)
        stages.append(
            Stage(
                name=f"up_blocks.{index}",
                inputs=tuple(inputs + skips.pop() for inputs in before),
                width=width,
                attention=kind.startswith("CrossAttn"),
                resample=index + 1 < len(widths),
            )
        )
        channels = width
    return stages


def transformers(stage: Stage) -> int:
    """Returns the number of transformers of a stage; the middle one has one."""
    if not stage.attention:
        return 0
    return 1 if stage.name == "mid_block" else len(stage.inputs)


def resampler(stage: Stage) -> str:
    """Returns the name of the convolution that changes the resolution after a stage."""
    kind = "down" if stage.name.startswith("down") else "up"
    return f"{stage.name}.{kind}samplers.0.conv"


def time_embedding_width(config: Mapping[str, Any]) -> int:
    """Returns the width of the embedding of the timestep."""
    return 4 * int(config["block_out_channels"][0])


def timestep_frequencies(config: Mapping[str, Any]) -> list[float]:
    """Returns the angles per timestep, half as many as the first stage has channels.

    In float64 for all frameworks: if each computed them in its own type, they would differ in the
    seventh digit (Ho et al. 2020, arXiv:2006.11239, after Vaswani et al. 2017, arXiv:1706.03762).
    """
    count = config["block_out_channels"][0] // 2
    return [float(10000 ** (-index / (count - config["freq_shift"]))) for index in range(count)]


ARCHITECTURE = SdUnet()
