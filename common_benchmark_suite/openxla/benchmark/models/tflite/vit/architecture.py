"""ViT in a TFLite file."""

from openxla.benchmark.models.architectures.vit import ViT
from openxla.benchmark.models.tflite.files import FileArchitecture


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
