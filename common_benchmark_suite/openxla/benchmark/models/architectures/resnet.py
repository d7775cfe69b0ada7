"""ResNet v1.5 for image classification (He et al. 2015, arXiv:1512.03385; stride in the 3x3)."""

import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from openxla.benchmark.models.architectures import layers
from openxla.benchmark.models.architectures.base import TensorInit
from openxla.benchmark.models.architectures.image_classifier import LABEL_CONFIG, ImageClassifier


def _config(embedding: int, widths: list[int], depths: list[int], image_size: int) -> Any:
    return {
        "architectures": ["ResNetForImageClassification"],
        "model_type": "resnet",
        "depths": depths,
        "downsample_in_first_stage": False,
        "embedding_size": embedding,
        "hidden_act": "relu",
        "hidden_sizes": widths,
        **LABEL_CONFIG,
        "image_size": image_size,
        "layer_type": "bottleneck",
        "num_channels": 3,
    }


_RESNET_50 = _config(64, [256, 512, 1024, 2048], [3, 4, 6, 3], image_size=224)


def _conv(name: str, inputs: int, outputs: int, kernel: int) -> Iterator[TensorInit]:
    stddev = math.sqrt(2 / (inputs * kernel * kernel))  # He et al. 2015, arXiv:1502.01852
    yield TensorInit(name=name, shape=(outputs, inputs, kernel, kernel), stddev=stddev)


def blocks(config: Mapping[str, Any]) -> Iterator[tuple[int, int, int]]:
    """Yields inputs, outputs and stride of each bottleneck."""
    channels = config["embedding_size"]
    stages = zip(config["hidden_sizes"], config["depths"], strict=True)
    for stage, (width, depth) in enumerate(stages):
        for block in range(depth):
            yield channels, width, 2 if stage > 0 and block == 0 else 1
            channels = width


class ResNet(ImageClassifier):
    """Input: pixels [batch, 3, height, width]; output: logits [batch, 1000]."""

    name = "resnet"
    version = 1
    configs = {
        "resnet-tiny": _config(16, [32, 64], [1, 2], image_size=32),
        "microsoft/resnet-50": _RESNET_50,
        # The OpenXLA suite's name for the same network in PyTorch; one configuration, one workload.
        "torchvision/resnet50": _RESNET_50,
    }
    pretrained = dict.fromkeys(
        ("microsoft/resnet-50", "torchvision/resnet50"),
        ("microsoft/resnet-50", "34c2154c194f829b11125337b98c8f5f9965ff19"),
    )

    # torchvision's and transformers' mean and standard deviation of ImageNet, red, green, blue.
    pixel_mean = (0.485, 0.456, 0.406)
    pixel_stddev = (0.229, 0.224, 0.225)
    standard = {"model_name": "microsoft/resnet-50"}
    example = {"model_name": "resnet-tiny"}
    module_names = (
        (r"^resnet\.embedder\.embedder\b", "stem"),
        (r"\blayer\.0\b", "reduce"),
        (r"\blayer\.1\b", "filter"),
        (r"\blayer\.2\b", "expand"),
        (r"\bconvolution\b", "conv"),
        (r"\bnormalization\b", "norm"),
        (r"^classifier\.1\b", "classifier"),
    )

    def module_name(self, tensor: str, config: Mapping[str, Any]) -> str:
        """Our modules count the blocks of all stages together."""
        before = [0, *itertools.accumulate(config["depths"])]
        return re.sub(
            r"^resnet\.encoder\.stages\.(\d+)\.layers\.(\d+)",
            lambda match: f"blocks.{before[int(match[1])] + int(match[2])}",
            super().module_name(tensor, config),
        )

    def tensors(self, config: Mapping[str, Any]) -> Iterable[TensorInit]:
        """See `Architecture.tensors`; names are transformers' `ResNetForImageClassification`."""
        stem = "resnet.embedder.embedder"
        channels = config["embedding_size"]
        yield from _conv(f"{stem}.convolution.weight", config["num_channels"], channels, 7)
        yield from layers.batch_norm(f"{stem}.normalization", channels)
        for stage, (width, depth) in enumerate(
            zip(config["hidden_sizes"], config["depths"], strict=True)
        ):
            for block in range(depth):
                yield from self._block(
                    f"resnet.encoder.stages.{stage}.layers.{block}", channels, width
                )
                channels = width
        yield from layers.linear("classifier.1", channels, len(config["id2label"]))

    def _block(self, name: str, inputs: int, outputs: int) -> Iterator[TensorInit]:
        if inputs != outputs:
            yield from _conv(f"{name}.shortcut.convolution.weight", inputs, outputs, 1)
            yield from layers.batch_norm(f"{name}.shortcut.normalization", outputs, gain=0.7)
        inner = outputs // 4
        shapes = ((inputs, inner, 1), (inner, inner, 3), (inner, outputs, 1))
        for index, (before, after, kernel) in enumerate(shapes):
            yield from _conv(f"{name}.layer.{index}.convolution.weight", before, after, kernel)
            # A small last gain keeps sixteen residual sums from growing without bound.
            gain = 0.4 if index == 2 else 1.0
            yield from layers.batch_norm(f"{name}.layer.{index}.normalization", after, gain=gain)


ARCHITECTURE = ResNet()
