"""Common parts of latent diffusion networks (Rombach et al. 2021, arXiv:2112.10752)."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from openxla.benchmark.def_types import Parameters
from openxla.benchmark.models.architectures import layers
from openxla.benchmark.models.architectures.base import Architecture, TensorInit

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

# Scale of residual branches relative to their input: sums of dozens of them stay of order one.
BRANCH_GAIN = 0.5 * layers.AFTER_ACTIVATION_GAIN


# Names in our own modules of the tensors of `resnet_block` and `attention`.
MODULE_NAMES = (
    (r"\bresnets\b", "blocks"),
    (r"\bconv_shortcut\b", "shortcut"),
    (r"\bto_q\b", "query"),
    (r"\bto_k\b", "key"),
    (r"\bto_v\b", "value"),
    (r"\bto_out\.0\b", "output"),
)


@attrs.frozen(kw_only=True)
class Stage:
    """Residual blocks at one resolution.

    Attributes:
      name: diffusers' name, e.g. `down_blocks.0`.
      inputs: input channels of each block.
      width: output channels of each block.
      attention: whether a transformer follows each block.
      resample: whether the stage ends with a change of resolution.
    """

    name: str
    inputs: tuple[int, ...]
    width: int
    attention: bool = False
    resample: bool


class LatentArchitecture(Architecture):
    """Networks whose default input is noise: the raw input is the seed of its generator."""

    def default_input_files(self) -> tuple[Path, ...]:
        """Returns nothing: noise comes from a generator, covered by the architecture's version."""
        return ()

    def default_inputs(self, parameters: Parameters) -> int:
        """The seed of the noise."""
        return 0


def noise(name: str, shape: tuple[int, ...], *, seed: int) -> "npt.NDArray[np.float32]":
    """Returns uniform noise of unit variance, float32[batch, ...].

    It uses the generator of the checkpoints, so the bytes are the same on every machine. Row r does
    not depend on the batch size, and no two rows are equal.
    """
    import numpy as np

    from openxla.benchmark.models import checkpoints

    batch, *row_shape = shape
    rows = [
        checkpoints.generate(
            TensorInit(name=f"{name}/{row}", shape=tuple(row_shape), stddev=1.0), seed=seed
        )
        for row in range(batch)
    ]
    return np.stack(rows).astype(np.float32, copy=False)


def resnet_block(
    name: str, inputs: int, outputs: int, time_width: int | None = None
) -> Iterator[TensorInit]:
    """Yields the tensors of diffusers' `ResnetBlock2D`; `time_width` is its timestep's."""
    gain = layers.AFTER_ACTIVATION_GAIN
    yield from layers.norm(f"{name}.norm1", inputs)
    yield from layers.conv(f"{name}.conv1", inputs, outputs, 3, 3, gain=gain)
    if time_width is not None:
        yield from layers.linear(f"{name}.time_emb_proj", time_width, outputs, gain=gain)
    yield from layers.norm(f"{name}.norm2", outputs)
    yield from layers.conv(f"{name}.conv2", outputs, outputs, 3, 3, gain=BRANCH_GAIN)
    if inputs != outputs:
        yield from layers.conv(f"{name}.conv_shortcut", inputs, outputs, 1, 1)


def attention(name: str, width: int, context_width: int, *, qkv_bias: bool) -> Iterator[TensorInit]:
    """Yields the tensors of diffusers' `Attention`."""
    gain = layers.ATTENTION_GAIN
    yield from layers.linear(f"{name}.to_q", width, width, gain=gain, bias=qkv_bias)
    yield from layers.linear(f"{name}.to_k", context_width, width, gain=gain, bias=qkv_bias)
    yield from layers.linear(f"{name}.to_v", context_width, width, bias=qkv_bias)
    # Averages over many keys are small; the last matrix restores the scale.
    yield from layers.linear(f"{name}.to_out.0", width, width, gain=2.0)


def latent_shape(config: Mapping[str, Any], batch_size: int, channels_key: str) -> tuple[int, ...]:
    """Returns the shape of latents, [batch, channels, size, size]."""
    size = config["sample_size"]
    return (batch_size, config[channels_key], size, size)
