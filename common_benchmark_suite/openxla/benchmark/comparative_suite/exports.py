"""What a model is exported to: as the OpenXLA suite published it, or as was proved here.

`exported_types.json` holds what was exported, read back and found right, model by model;
`cbs artifacts generate --record-types` writes it. A model that is not in it is taken to export as
those of the same module and data type do, and to nothing if none of them was tried.
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
    """Returns the exports of a JAX model, as the OpenXLA suite's lists have them.

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


def proved(
    implementation: ModelImplementation, parameters: Parameters
) -> tuple[ModelArtifactType, ...]:
    """Returns what such models were proved to export to; nothing where none of them was tried.

    Where several were tried, it is what all of them export to.

    Args:
      implementation: of the model.
      parameters: of the model; its data type counts, and whether it generates.
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
    """Returns what models have in common that export alike: module, data type, whether one loops.

    Pipelines count as what they are by their module.
    """
    data_type = str(parameters.get("data_type", "fp32"))
    return implementation.module_path, data_type, "max_new_tokens" in parameters


@functools.cache
def recorded(path: Path) -> Mapping[str, Mapping[str, Any]]:
    """Returns the entries of a file of proved exports, by model; none where there is no file.

    Raises:
      ValueError: it is of another version.
    """
    if not path.is_file():
        return {}
    document = json.loads(path.read_text(encoding="utf-8"))
    if document["version"] != PROVED_VERSION:
        raise ValueError(f"{path} has version {document['version']!r}, expected {PROVED_VERSION}")
    entries: Mapping[str, Mapping[str, Any]] = document["models"]
    return entries
