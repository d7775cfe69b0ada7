"""What a model is exported to, by framework and data type, as the seed's lists have it."""

from collections.abc import Collection

from openxla.benchmark.def_types import ModelArtifactType

PROGRAMS = (ModelArtifactType.STABLEHLO_MLIR, ModelArtifactType.XLA_HLO_DUMP)

_TFLITE_UNQUANTIZED = (ModelArtifactType.TFLITE_FP32, ModelArtifactType.TFLITE_FP32_STABLEHLO)
_TFLITE_QUANTIZED = (
    ModelArtifactType.TFLITE_FP16,
    ModelArtifactType.TFLITE_DYNAMIC_RANGE_QUANT,
    ModelArtifactType.TFLITE_INT8,
)


def from_jax(data_type: str, tflite: Collection[str]) -> tuple[ModelArtifactType, ...]:
    """Returns the exports of a JAX model.

    Args:
      data_type: of the model; only fp32 models are quantised.
      tflite: data types of the family that are converted to TFLite.
    """
    if data_type not in tflite:
        return PROGRAMS
    quantized = _TFLITE_QUANTIZED if data_type == "fp32" else ()
    return (*PROGRAMS, *_TFLITE_UNQUANTIZED, *quantized)


def from_tensorflow(
    data_type: str, tflite: Collection[ModelArtifactType]
) -> tuple[ModelArtifactType, ...]:
    """Returns the exports of a TensorFlow model; `tflite` are the kinds made of an fp32 one."""
    saved = (*PROGRAMS, ModelArtifactType.TF_SAVEDMODEL_V2)
    return (*saved, *tflite) if data_type == "fp32" else saved
