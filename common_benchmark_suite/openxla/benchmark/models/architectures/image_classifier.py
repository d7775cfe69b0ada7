"""Common parts of image classifiers: pixels in, logits out."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from openxla.benchmark import testdata
from openxla.benchmark.def_types import Parameters, TensorSpec
from openxla.benchmark.models.architectures.base import Architecture, Arrays, integer, tensor

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

LABELS = 1000

# ImageNet's labels, with transformers' keys.
LABEL_CONFIG: Mapping[str, Any] = {
    "id2label": {str(index): f"LABEL_{index}" for index in range(LABELS)},
    "label2id": {f"LABEL_{index}": index for index in range(LABELS)},
}


class ImageClassifier(Architecture):
    """Input: pixels [batch, 3, height, width]; output: logits [batch, labels].

    `pixel_mean` and `pixel_stddev` normalise red, green and blue, each first scaled to [0, 1].
    """

    pixel_mean: ClassVar[tuple[float, float, float]]
    pixel_stddev: ClassVar[tuple[float, float, float]]
    # Number of labels if the configuration does not name them.
    labels: ClassVar[int] = LABELS

    def input_specs(self, parameters: Parameters) -> tuple[TensorSpec, ...]:
        """Pixels, [batch, 3, height, width], normalised per channel."""
        size = self.config_of(parameters)["image_size"]
        return (tensor(parameters, integer(parameters, "batch_size"), 3, size, size),)

    def output_specs(self, parameters: Parameters) -> tuple[TensorSpec, ...]:
        """Logits, [batch, labels]."""
        named = self.config_of(parameters).get("id2label")
        labels = self.labels if named is None else len(named)
        return (tensor(parameters, integer(parameters, "batch_size"), labels),)

    def default_input_files(self) -> tuple[Path, ...]:
        """The bundled picture."""
        return (testdata.DEFAULT_IMAGE,)

    def default_inputs(self, parameters: Parameters) -> "npt.NDArray[np.uint8]":
        """The bundled picture, uint8[height, width, 3]."""
        return testdata.load_image()

    def preprocess(self, raw_input: Any, parameters: Parameters, checkpoint: Path) -> Arrays:
        """Resizes, shifts (a different shift for each row of the batch) and normalises."""
        from openxla.benchmark.models import preprocessing

        pixels = preprocessing.image_batch(
            raw_input,
            batch_size=integer(parameters, "batch_size"),
            size=self.config_of(parameters)["image_size"],
            mean=self.pixel_mean,
            stddev=self.pixel_stddev,
        )
        return (pixels.astype(preprocessing.numpy_dtype(self.input_specs(parameters)[0].dtype)),)
