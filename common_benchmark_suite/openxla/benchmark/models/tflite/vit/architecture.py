"""ViT out of a TFLite file: the shared architecture, with parameters from the file's address."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from openxla.benchmark.def_types import Parameters, TensorSpec
from openxla.benchmark.models.architectures.vit import ViT
from openxla.benchmark.models.tflite import model_uri

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

SOURCES: tuple[model_uri.Source, ...] = (
    (
        r"VIT_TINY_FP32_JAX_3X32X32XF32_BATCH(?P<batch_size>[1-9]\d*)",
        {"model_name": "vit-tiny"},
    ),
    (
        r"VIT_CLASSIFICATION_JAX_3X224X224XF32",
        {"model_name": "google/vit-base-patch16-224", "batch_size": 1},
    ),
)


class TfLiteViT(ViT):
    """ViT whose `data_type` may be a precision of TFLite.

    Pixels and logits stay fp32 here, whatever the file takes: they are what all programs are given
    and judged by. A file with int8 at its edges is given the same pixels, quantised as it says.
    """

    def complete(self, parameters: Parameters) -> Parameters:
        """Adds what the file's address says."""
        return model_uri.completed(super().complete(parameters), SOURCES)

    def input_specs(self, parameters: Parameters) -> tuple[TensorSpec, ...]:
        """Those of the JAX model."""
        return super().input_specs(model_uri.unquantized(self.complete(parameters)))

    def output_specs(self, parameters: Parameters) -> tuple[TensorSpec, ...]:
        """Those of the JAX model."""
        return super().output_specs(model_uri.unquantized(self.complete(parameters)))

    def preprocess(
        self, raw_input: Any, parameters: Parameters, checkpoint: Path
    ) -> "tuple[npt.NDArray[np.generic], ...]":
        """Those of the JAX model, byte for byte."""
        return super().preprocess(raw_input, self.complete(parameters), checkpoint)

    def label(self, parameters: Parameters) -> str:
        """The JAX model's label, with the file's precision for the type."""
        given = self.complete(parameters)
        plain = super().label(model_uri.unquantized(given))
        return plain.replace("-fp32-", f"-{given['data_type']}-", 1)


ARCHITECTURE = TfLiteViT()
