"""ViT in TFLite: a file like the one that its address names, on the shared checkpoint."""

from typing import Any

from openxla.benchmark.models import shared_model
from openxla.benchmark.models.tflite.tflite_model import TfLiteModel
from openxla.benchmark.models.tflite.vit.architecture import ARCHITECTURE

_SOURCE = "openxla.benchmark.models.tf.vit.vit_model"


def create_model(
    model_uri: str = "converted:VIT_TINY_FP32_JAX_3X32X32XF32_BATCH1/model_fp32.tflite",
    **parameters: Any,
) -> TfLiteModel:
    """Returns the ViT of a TFLite file.

    Input: pixels f32[batch, 3, height, width]; output: logits f32[batch, 1000]. Further parameters:
    `checkpoint` (`seeded` or `pretrained`) and `seed`; see `TfLiteModel`.
    """
    return TfLiteModel(ARCHITECTURE, {"model_uri": model_uri, **parameters}, _SOURCE)


if __name__ == "__main__":
    shared_model.run_once(
        create_model, model_uri="converted:VIT_TINY_FP32_JAX_3X32X32XF32_BATCH1/model_fp32.tflite"
    )
