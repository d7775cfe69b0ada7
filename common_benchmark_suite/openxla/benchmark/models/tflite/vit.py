"""ViT in TFLite: a file like the one at its address, on the shared checkpoint."""

from typing import TYPE_CHECKING, Any

from openxla.benchmark.models.architectures.vit import ViT
from openxla.benchmark.models.tflite.files import FileArchitecture

if TYPE_CHECKING:
    from openxla.benchmark.models.tflite.tflite_model import TfLiteModel


class TfLiteViT(FileArchitecture, ViT):
    """ViT with parameters from a file's address."""

    sources = (
        (
            r"VIT_TINY_FP32_JAX_3X32X32XF32_BATCH(?P<batch_size>[1-9]\d*)",
            {"model_name": "vit-tiny"},
        ),
        (
            r"VIT_CLASSIFICATION_JAX_3X224X224XF32",
            {"model_name": "google/vit-base-patch16-224", "batch_size": 1},
        ),
    )
    standard = {"model_uri": "converted:VIT_TINY_FP32_JAX_3X32X32XF32_BATCH1/model_fp32.tflite"}
    example = standard


ARCHITECTURE = TfLiteViT()


def create_model(**parameters: Any) -> "TfLiteModel":
    """Returns the model with these parameters."""
    # Imported late, because `cbs list` uses the architecture and should not import numpy.
    from openxla.benchmark.models.tflite import tflite_model

    source = "openxla.benchmark.models.tf.vit"
    return tflite_model.creator(ARCHITECTURE, source_module=source)(**parameters)


if __name__ == "__main__":
    from openxla.benchmark.models import shared_model

    shared_model.run_once(create_model, **ARCHITECTURE.example)
