"""EfficientNet for image classification (Tan and Le 2019, arXiv:1905.11946)."""

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import attrs

from openxla.benchmark.models.architectures import layers
from openxla.benchmark.models.architectures.base import TensorInit
from openxla.benchmark.models.architectures.image_classifier import LABEL_CONFIG, ImageClassifier

# Scales of a seeded checkpoint. Its batch norms have running statistics near 0 and 1 and do not
# correct the scale, so each convolution compensates for the mean square of its input. Before swish,
# activations have a standard deviation of 2: near 1 or below, swish is so nonlinear that small
# deviations of scale would grow from block to block.
_PIXELS = 0.1  # mean square of a picture's pixels
_BEFORE_SWISH = 2.0
_SWISH = 1.76  # mean square of swish of a normal variable of that standard deviation
_POOLED = 1.0  # about the mean square of the mean of swish over an image
_GATE = 0.3  # mean square of a gate of squeeze-and-excitation, and a margin for the norms' spread
_RESIDUAL = 0.3  # what a block adds to its input, relative to the first block of its stage


def _config(
    width: float, depth: float, image_size: int, depthwise_padding: list[int], **changes: Any
) -> Any:
    config = {
        "architectures": ["EfficientNetForImageClassification"],
        "model_type": "efficientnet",
        **LABEL_CONFIG,
        "batch_norm_eps": 0.001,
        "batch_norm_momentum": 0.99,
        "depth_coefficient": depth,
        "depth_divisor": 8,
        "depthwise_padding": depthwise_padding,
        "drop_connect_rate": 0.2,
        "dropout_rate": 0.5,
        "expand_ratios": [1, 6, 6, 6, 6, 6, 6],
        "hidden_act": "swish",
        "image_size": image_size,
        "in_channels": [32, 16, 24, 40, 80, 112, 192],
        "initializer_range": 0.02,
        "kernel_sizes": [3, 3, 5, 3, 5, 5, 3],
        "num_block_repeats": [1, 2, 2, 3, 3, 4, 1],
        "num_channels": 3,
        "out_channels": [16, 24, 40, 80, 112, 192, 320],
        "pooling_type": "mean",
        "squeeze_expansion_ratio": 0.25,
        "strides": [1, 2, 2, 2, 1, 2, 1],
        "width_coefficient": width,
        **changes,
    }
    return {**config, "hidden_dim": rounded_width(config, 1280)}


def rounded_width(config: Mapping[str, Any], channels: int) -> int:
    """Returns a number of channels, scaled and rounded as the paper's own code does."""
    divisor, scaled = config["depth_divisor"], channels * config["width_coefficient"]
    width = max(divisor, int(scaled + divisor / 2) // divisor * divisor)
    # Rounding down must not remove more than a tenth.
    return int(width + divisor if width < 0.9 * scaled else width)


_B7 = _config(2.0, 3.1, image_size=600, depthwise_padding=[18])


@attrs.frozen(kw_only=True)
class Block:
    """An inverted bottleneck with squeeze-and-excitation.

    Attributes:
      inputs: channels of its input.
      expanded: channels between expansion and projection.
      squeezed: channels inside squeeze-and-excitation.
      outputs: channels of its output.
      kernel: height and width of the depthwise filter.
      stride: stride of the depthwise filter.
      padding: zeros before and after, the same for height and width.
      expands: whether there is an expansion at all.
      residual: whether the input is added to the output.
    """

    inputs: int
    expanded: int
    squeezed: int
    outputs: int
    kernel: int
    stride: int
    padding: tuple[int, int]
    expands: bool
    residual: bool


def blocks(config: Mapping[str, Any]) -> Iterator[Block]:
    """Yields the blocks of a configuration, with the exact rules of transformers."""
    count = 0
    for source, target, repeats, kernel, first_stride, ratio in zip(
        config["in_channels"],
        config["out_channels"],
        config["num_block_repeats"],
        config["kernel_sizes"],
        config["strides"],
        config["expand_ratios"],
        strict=True,
    ):
        inputs, outputs = rounded_width(config, source), rounded_width(config, target)
        for repeat in range(math.ceil(config["depth_coefficient"] * repeats)):
            stride = first_stride if repeat == 0 else 1
            # A strided window over an even size needs one zero less at the start; the configuration
            # lists the blocks that see an odd size.
            less = stride == 2 and count not in config["depthwise_padding"]
            yield Block(
                inputs=inputs,
                expanded=inputs * ratio,
                squeezed=max(1, int(inputs * config["squeeze_expansion_ratio"])),
                outputs=outputs,
                kernel=kernel,
                stride=stride,
                padding=(kernel // 2 - 1 if less else kernel // 2, kernel // 2),
                expands=ratio != 1,
                residual=stride == 1 and repeat > 0,
            )
            inputs = outputs
            count += 1


def _conv(name: str, inputs: int, outputs: int, kernel: int, mean_square: float) -> TensorInit:
    stddev = 1 / math.sqrt(inputs * kernel * kernel * mean_square)
    return TensorInit(name=f"{name}.weight", shape=(outputs, inputs, kernel, kernel), stddev=stddev)


class EfficientNet(ImageClassifier):
    """Input: pixels [batch, 3, height, width]; output: logits [batch, 1000]."""

    name = "efficientnet"
    version = 1
    configs = {
        # Even and odd sizes, both kernels, blocks with and without expansion and residual sum.
        "efficientnet-tiny": _config(
            0.25,
            1.0,
            image_size=36,
            depthwise_padding=[3],
            expand_ratios=[1, 6, 6],
            in_channels=[32, 16, 24],
            kernel_sizes=[3, 3, 5],
            num_block_repeats=[1, 2, 2],
            out_channels=[16, 24, 40],
            strides=[1, 2, 2],
        ),
        "google/efficientnet-b0": _config(
            1.0, 1.0, image_size=224, depthwise_padding=[], dropout_rate=0.2
        ),
        "google/efficientnet-b7": _B7,
        # The OpenXLA suite's name for the same network in TensorFlow; one workload.
        "efficientnetb7": _B7,
    }
    # The statistics of the hub's checkpoints, in RGB; the deviation is the square root of
    # ImageNet's.
    pixel_mean = (0.485, 0.456, 0.406)
    pixel_stddev = (0.47853944, 0.4732864, 0.47434163)

    standard = {"model_name": "google/efficientnet-b7"}
    example = {"model_name": "efficientnet-tiny"}
    module_names = (
        (r"^efficientnet\.embeddings\.convolution\b", "stem.conv"),
        (r"^efficientnet\.embeddings\.batchnorm\b", "stem.norm"),
        (r"^efficientnet\.encoder\.", ""),
        (r"\bdepthwise_conv\.depthwise_", "filter_"),
        (r"\b(expansion|projection)\.", ""),
        (r"\b(expand|filter|project|top)_conv\b", r"\1.conv"),
        (r"\b(expand|filter|project|top)_(bn|norm)\b", r"\1.norm"),
        (r"\bsqueeze_excite\b", "excite"),
    )

    def tensors(self, config: Mapping[str, Any]) -> Iterable[TensorInit]:
        """See `Architecture.tensors`; names are `EfficientNetForImageClassification`'s."""
        stem, channels = "efficientnet.embeddings", rounded_width(config, 32)
        yield _conv(f"{stem}.convolution", config["num_channels"], channels, 3, _PIXELS)
        yield from layers.batch_norm(f"{stem}.batchnorm", channels, _BEFORE_SWISH)
        mean_square = _SWISH
        for index, block in enumerate(blocks(config)):
            yield from _block(f"efficientnet.encoder.blocks.{index}", block, mean_square)
            mean_square = mean_square + _RESIDUAL**2 if block.residual else 1.0
            channels = block.outputs
        top, width = "efficientnet.encoder.top", config["hidden_dim"]
        yield _conv(f"{top}_conv", channels, width, 1, mean_square)
        yield from layers.batch_norm(f"{top}_bn", width, _BEFORE_SWISH)
        stddev, labels = 1 / math.sqrt(width * _POOLED), len(config["id2label"])
        yield TensorInit(name="classifier.weight", shape=(labels, width), stddev=stddev)
        yield TensorInit(name="classifier.bias", shape=(labels,), stddev=0.1)


def _block(name: str, block: Block, mean_square: float) -> Iterator[TensorInit]:
    if block.expands:
        expansion = f"{name}.expansion.expand"
        yield _conv(f"{expansion}_conv", block.inputs, block.expanded, 1, mean_square)
        yield from layers.batch_norm(f"{expansion}_bn", block.expanded, _BEFORE_SWISH)
        mean_square = _SWISH
    depthwise = f"{name}.depthwise_conv.depthwise"
    yield _conv(f"{depthwise}_conv", 1, block.expanded, block.kernel, mean_square)
    yield from layers.batch_norm(f"{depthwise}_norm", block.expanded, _BEFORE_SWISH)
    for part, inputs, outputs in (
        ("reduce", block.expanded, block.squeezed),
        ("expand", block.squeezed, block.expanded),
    ):
        # Keeps gates away from 0 and 1, where they would propagate any growth of scale.
        yield _conv(f"{name}.squeeze_excite.{part}", inputs, outputs, 1, 4 * _POOLED)
        yield TensorInit(name=f"{name}.squeeze_excite.{part}.bias", shape=(outputs,), stddev=0.1)
    project = f"{name}.projection.project"
    yield _conv(f"{project}_conv", block.expanded, block.outputs, 1, _SWISH * _GATE)
    gain = _RESIDUAL if block.residual else 1.0
    yield from layers.batch_norm(f"{project}_bn", block.outputs, gain)


ARCHITECTURE = EfficientNet()
