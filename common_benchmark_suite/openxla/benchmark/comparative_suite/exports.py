"""Export formats of models: as published by the OpenXLA suite, or as verified here.

`exported_types.json` lists by model the exports that were read back and verified; `cbs artifacts
generate --record-types` writes it. A model that is not listed is assumed to export to the same
formats as models of the same module and data type, or to none if none of them was tried.
"""

import functools
import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from openxla.benchmark.def_types import ModelArtifactType, ModelImplementation, Parameters

PROGRAMS = (ModelArtifactType.STABLEHLO_MLIR, ModelArtifactType.XLA_HLO_DUMP)
PROVED_FILE = Path(__file__).with_name("exported_types.json")
PROVED_VERSION = 1

_TFLITE_UNQUANTIZED = (ModelArtifactType.TFLITE_FP32, ModelArtifactType.TFLITE_FP32_STABLEHLO)
_TFLITE_QUANTIZED = (
    ModelArtifactType.TFLITE_FP16,
    ModelArtifactType.TFLITE_DYNAMIC_RANGE_QUANT,
    ModelArtifactType.TFLITE_INT8,
)


def from_jax(data_type: str, tflite: Collection[str]) -> tuple[ModelArtifactType, ...]:
    """Returns the export formats of a JAX model, as in the OpenXLA suite's lists.

    Args:
      data_type: data type of the model; only fp32 models are quantised.
      tflite: data types of the family that are converted to TFLite.
    """
    if data_type not in tflite:
        return PROGRAMS
    quantized = _TFLITE_QUANTIZED if data_type == "fp32" else ()
    return (*PROGRAMS, *_TFLITE_UNQUANTIZED, *quantized)


def from_tensorflow(
    data_type: str, tflite: Collection[ModelArtifactType]
) -> tuple[ModelArtifactType, ...]:
    """Returns the exports of a TensorFlow model; `tflite` lists those of an fp32 model."""
    saved = (*PROGRAMS, ModelArtifactType.TF_SAVEDMODEL_V2)
    return (*saved, *tflite) if data_type == "fp32" else saved


def proved(
    implementation: ModelImplementation, parameters: Parameters
) -> tuple[ModelArtifactType, ...]:
    """Returns the verified export formats of similar models; empty if none of them was tried.

    If several were tried, these are the formats common to all.

    Args:
      implementation: implementation of the model.
      parameters: parameters of the model; data type and generation matter.
    """
    wanted = key_of(implementation, parameters)
    found = [
        set(entry["types"])
        for entry in recorded(PROVED_FILE).values()
        if (entry["module_path"], entry["data_type"], entry["generates"]) == wanted
    ]
    common = set.intersection(*found) if found else set()
    return tuple(kind for kind in ModelArtifactType if kind.value in common)


def key_of(
    implementation: ModelImplementation, parameters: Parameters
) -> tuple[str | None, str, bool]:
    """Returns the key of models that export alike: module, data type, and whether one loops.

    Pipelines are identified by their module.
    """
    data_type = str(parameters.get("data_type", "fp32"))
    return implementation.module_path, data_type, "max_new_tokens" in parameters


@functools.cache
def recorded(path: Path) -> Mapping[str, Mapping[str, Any]]:
    """Returns the entries of a file of verified exports, by model; empty without the file.

    Raises:
      ValueError: the file has another version.
    """
    if not path.is_file():
        return {}
    document = json.loads(path.read_text(encoding="utf-8"))
    if document["version"] != PROVED_VERSION:
        raise ValueError(f"{path} has version {document['version']!r}, expected {PROVED_VERSION}")
    entries: Mapping[str, Mapping[str, Any]] = document["models"]
    return entries
