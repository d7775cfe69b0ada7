"""ResNet v1.5 for image classification (He et al. 2015, arXiv:1512.03385; stride in the 3x3)."""

import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from openxla.benchmark import testdata
from openxla.benchmark.def_types import Parameters, TensorSpec
from openxla.benchmark.models.architectures.base import (
    Architecture,
    TensorInit,
    element_type,
    integer,
)

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_LABELS = 1000


def _config(embedding: int, widths: list[int], depths: list[int], image_size: int) -> Any:
    return {
        "architectures": ["ResNetForImageClassification"],
        "model_type": "resnet",
        "depths": depths,
        "downsample_in_first_stage": False,
        "embedding_size": embedding,
        "hidden_act": "relu",
        "hidden_sizes": widths,
        "id2label": {str(index): f"LABEL_{index}" for index in range(_LABELS)},
        "label2id": {f"LABEL_{index}": index for index in range(_LABELS)},
        "image_size": image_size,
        "layer_type": "bottleneck",
        "num_channels": 3,
    }


_RESNET_50 = _config(64, [256, 512, 1024, 2048], [3, 4, 6, 3], image_size=224)

# torchvision's and transformers' mean and standard deviation of ImageNet, red, green, blue.
_MEAN, _STDDEV = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def _conv(name: str, inputs: int, outputs: int, kernel: int) -> Iterator[TensorInit]:
    stddev = math.sqrt(2 / (inputs * kernel * kernel))  # He et al. 2015, arXiv:1502.01852
    yield TensorInit(name=name, shape=(outputs, inputs, kernel, kernel), stddev=stddev)


def _batch_norm(name: str, size: int, gain: float = 1.0) -> Iterator[TensorInit]:
    yield TensorInit(name=f"{name}.weight", shape=(size,), mean=gain, stddev=0.1 * gain)
    yield TensorInit(name=f"{name}.bias", shape=(size,), stddev=0.1)
    yield TensorInit(name=f"{name}.running_mean", shape=(size,), stddev=0.1)
    yield TensorInit(name=f"{name}.running_var", shape=(size,), mean=1.0, stddev=0.1)
    yield TensorInit(name=f"{name}.num_batches_tracked", shape=(), dtype="I64")


class ResNet(Architecture):
    """Input: pixels [batch, 3, height, width]; output: logits [batch, 1000]."""

    name = "resnet"
    version = 1
    configs = {
        "resnet-tiny": _config(16, [32, 64], [1, 2], image_size=32),
        "microsoft/resnet-50": _RESNET_50,
        # The seed's name for the same network in PyTorch; one configuration, one workload.
        "torchvision/resnet50": _RESNET_50,
    }
    pretrained = dict.fromkeys(
        ("microsoft/resnet-50", "torchvision/resnet50"),
        ("microsoft/resnet-50", "34c2154c194f829b11125337b98c8f5f9965ff19"),
    )

    def tensors(self, config: Mapping[str, Any]) -> Iterable[TensorInit]:
        """See `Architecture.tensors`; names are transformers' `ResNetForImageClassification`."""
        stem = "resnet.embedder.embedder"
        channels = config["embedding_size"]
        yield from _conv(f"{stem}.convolution.weight", config["num_channels"], channels, 7)
        yield from _batch_norm(f"{stem}.normalization", channels)
        for stage, (width, depth) in enumerate(
            zip(config["hidden_sizes"], config["depths"], strict=True)
        ):
            for block in range(depth):
                yield from self._block(
                    f"resnet.encoder.stages.{stage}.layers.{block}", channels, width
                )
                channels = width
        yield TensorInit(
            name="classifier.1.weight", shape=(_LABELS, channels), stddev=1 / math.sqrt(channels)
        )
        yield TensorInit(name="classifier.1.bias", shape=(_LABELS,), stddev=0.1)

    def _block(self, name: str, inputs: int, outputs: int) -> Iterator[TensorInit]:
        if inputs != outputs:
            yield from _conv(f"{name}.shortcut.convolution.weight", inputs, outputs, 1)
            yield from _batch_norm(f"{name}.shortcut.normalization", outputs, gain=0.7)
        inner = outputs // 4
        shapes = ((inputs, inner, 1), (inner, inner, 3), (inner, outputs, 1))
        for index, (before, after, kernel) in enumerate(shapes):
            yield from _conv(f"{name}.layer.{index}.convolution.weight", before, after, kernel)
            # A small last gain: sixteen residual sums would let activations grow without bound.
            gain = 0.4 if index == 2 else 1.0
            yield from _batch_norm(f"{name}.layer.{index}.normalization", after, gain=gain)

    def input_specs(self, parameters: Parameters) -> tuple[TensorSpec, ...]:
        """Pixels, [batch, 3, height, width], normalised per channel."""
        size = self.config(str(parameters["model_name"]))["image_size"]
        shape = (integer(parameters, "batch_size"), 3, size, size)
        return (TensorSpec(shape=shape, dtype=element_type(parameters.get("data_type"))),)

    def output_specs(self, parameters: Parameters) -> tuple[TensorSpec, ...]:
        """Logits, [batch, 1000]."""
        shape = (integer(parameters, "batch_size"), _LABELS)
        return (TensorSpec(shape=shape, dtype=element_type(parameters.get("data_type"))),)

    def default_input_files(self) -> tuple[Path, ...]:
        """The bundled picture."""
        return (testdata.DEFAULT_IMAGE,)

    def default_inputs(self, parameters: Parameters) -> "npt.NDArray[np.uint8]":
        """The bundled picture, uint8[height, width, 3]."""
        return testdata.load_image()

    def preprocess(
        self, raw_input: Any, parameters: Parameters, checkpoint: Path
    ) -> "tuple[npt.NDArray[np.generic], ...]":
        """Resizes, shifts (a different shift for each row of the batch) and normalises."""
        from openxla.benchmark.models import preprocessing

        pixels = preprocessing.image_batch(
            raw_input,
            batch_size=integer(parameters, "batch_size"),
            size=self.config(str(parameters["model_name"]))["image_size"],
            mean=_MEAN,
            stddev=_STDDEV,
        )
        return (pixels.astype(preprocessing.numpy_dtype(self.input_specs(parameters)[0].dtype)),)


ARCHITECTURE = ResNet()
