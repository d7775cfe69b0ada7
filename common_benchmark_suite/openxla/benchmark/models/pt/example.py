"""A small convolutional network in plain PyTorch, in the manner of MobileNetV3.

It shares no architecture with another framework, so this one file is all that the model needs:
the smallest complete example of `InferenceModel`. (Blocks as in Howard et al. 2019,
arXiv:1905.02244: expand, depthwise, squeeze and excite, project.)
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from openxla.benchmark import testdata
from openxla.benchmark.models import model_interfaces, preprocessing, shared_model
from openxla.benchmark.models.pt.tensors import TORCH_DTYPES, as_tensor


class SqueezeExcite(nn.Module):
    """Scales each channel by a gate computed from the channel means."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.reduce = nn.Conv2d(channels, channels // 4, 1)
        self.expand = nn.Conv2d(channels // 4, channels, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[batch, channels, height, width], same shape out."""
        gate = self.expand(torch.relu(self.reduce(x.mean((2, 3), keepdim=True))))
        return x * nn.functional.hardsigmoid(gate)


def inverted_residual(inputs: int, outputs: int, stride: int) -> nn.Module:
    """Expand four times, filter each channel, gate, project."""
    wide = 4 * inputs
    return nn.Sequential(
        nn.Conv2d(inputs, wide, 1),
        nn.Hardswish(),
        nn.Conv2d(wide, wide, 3, stride, padding=1, groups=wide),
        nn.Hardswish(),
        SqueezeExcite(wide),
        nn.Conv2d(wide, outputs, 1),
    )


class ExampleModel(nn.Module, model_interfaces.InferenceModel):
    """Input: pixels [batch, 3, 64, 64]; output: scores [batch, 10]."""

    def __init__(self, batch_size: int, data_type: str) -> None:
        super().__init__()
        self.batch_size = batch_size
        self.data_type = data_type
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.layers = nn.Sequential(
                nn.Conv2d(3, 16, 3, stride=2, padding=1),
                nn.Hardswish(),
                inverted_residual(16, 24, stride=2),
                inverted_residual(24, 40, stride=2),
                nn.AdaptiveAvgPool2d(1),
                nn.Flatten(),
                nn.Linear(40, 10),
            )
        self.to(TORCH_DTYPES[data_type]).eval().requires_grad_(False)

    def generate_default_inputs(self) -> npt.NDArray[np.uint8]:
        """A photo of a cat."""
        return testdata.load_image()

    def preprocess(self, raw_input: npt.NDArray[np.uint8]) -> npt.NDArray[np.generic]:
        """Resizes and normalises the photo; one shifted copy for each row of the batch."""
        pixels = preprocessing.image_batch(
            raw_input,
            batch_size=self.batch_size,
            size=64,
            mean=(0.5, 0.5, 0.5),
            stddev=(0.25, 0.25, 0.25),
        )
        return pixels.astype(preprocessing.numpy_dtype(self.data_type.replace("fp", "f")))

    def forward(self, pixels: Any) -> torch.Tensor:
        """Returns the scores."""
        scores: torch.Tensor = self.layers(as_tensor(pixels))
        return scores


def create_model(batch_size: int = 1, data_type: str = "fp32") -> ExampleModel:
    """Returns the example with weights from a fixed seed."""
    return ExampleModel(batch_size=batch_size, data_type=data_type)


if __name__ == "__main__":
    shared_model.run_once(create_model, batch_size=1, data_type="fp32")
