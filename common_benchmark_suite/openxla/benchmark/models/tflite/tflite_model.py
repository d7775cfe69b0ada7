"""A TFLite file as a model: a file from the artifact root, or a converted model."""

import importlib
import importlib.util
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from openxla.benchmark.def_types import DefinitionError, Parameters
from openxla.benchmark.models import checkpoints, shared_model
from openxla.benchmark.models.architectures import Architecture
from openxla.benchmark.models.architectures.base import digest_of
from openxla.benchmark.models.tflite import conversion, files

# By name: importing them would import TensorFlow.
_PARTS = [f"openxla.benchmark.models.tf.{part}" for part in ("keras_model", "layers", "operations")]
_CONVERTERS = (conversion.__name__, shared_model.__name__, *_PARTS)


class TfLiteModel(shared_model.ArchitectureModel):
    """The model in the file that `model_uri` names.

    With `checkpoint=seeded`, the default, the suite converts a file of the same kind: it has the
    architecture, sizes and precision of the JAX model in the address, with seeded weights, but
    comes from the TensorFlow implementation. (In JAX's program, activations are split into products
    and quotients, which int8 does not represent accurately.) With `checkpoint=pretrained` it is the
    published file, which must be in the artifact root; see `files`.

    Args:
      architecture: architecture of the model.
      parameters: `model_uri`, the parameters it implies, and optionally `checkpoint` and `seed`.
      source_module: module of the implementation that is converted.

    Attributes:
      uri: the address.
    """

    def __init__(
        self, architecture: Architecture, parameters: Parameters, source_module: str
    ) -> None:
        self.set_architecture(architecture, parameters)
        self.uri = files.parse_uri(parameters["model_uri"])
        self._source_module = source_module

    def source(self) -> Any:
        """Returns the model behind the file, unquantised, on the same checkpoint."""
        parameters = files.unquantized_parameters(self.model_parameters)
        del parameters["model_uri"]
        return importlib.import_module(self._source_module).create_model(**parameters)

    def file(self, phase: conversion.PhaseTimer = conversion.untimed) -> files.TfLiteFile:
        """Returns the file, converting it first if necessary; `phase` times the conversion.

        Raises:
          CheckpointError: the published file is required but missing.
          NotConvertibleError: TFLite cannot represent the model.
        """
        if self.model_parameters.get("checkpoint", "seeded") == "pretrained":
            return files.published(self.uri)

        def make(path: Path) -> dict[str, Any]:
            specs = self.architecture.input_specs(self.model_parameters)
            notes: dict[str, Any] = {}
            with tempfile.TemporaryDirectory(prefix="cbs-tflite-") as directory:
                content = conversion.convert(
                    self.source(),
                    specs,
                    self.uri.precision,
                    Path(directory),
                    integer_edges=self._has_integer_edges(),
                    phase=phase,
                    notes=notes,
                )
            path.write_bytes(content)
            return {"converter": conversion.versions(), **notes}

        return files.converted(self.uri, self._recipe(), make)

    def forward(self, *inputs: npt.NDArray[np.generic]) -> Any:
        """Runs the file's program, on one thread, from and to arrays as `input_specs` declares."""
        from openxla.benchmark.models.tflite.program import Program

        program = Program(self.file().path, threads=1)
        program.set_inputs(inputs)
        program.invoke()
        return tuple(program.outputs())

    def _has_integer_edges(self) -> bool:
        """Returns whether inputs and outputs are int8 as well: only if all inputs are numbers."""
        specs = self.architecture.input_specs(self.model_parameters)
        return self.uri.precision == files.INT8 and all(spec.dtype == "f32" for spec in specs)

    def _recipe(self) -> dict[str, Any]:
        parameters = self.model_parameters
        return {
            "architecture": f"{self.architecture.name}/{self.architecture.version}",
            "config": digest_of(self.architecture.config(str(parameters["model_name"]))),
            "checkpoint": checkpoints.identity(self.architecture, parameters),
            "inputs": [str(spec) for spec in self.architecture.input_specs(parameters)],
            "precision": self.uri.precision,
            "integer_edges": self._has_integer_edges(),
            "calibration_sets": conversion.CALIBRATION_SETS,
            "sources": [_source_digest(name) for name in (self._source_module, *_CONVERTERS)],
            "versions": conversion.versions(),
        }


def creator(architecture: Architecture, *, source_module: str) -> Callable[..., TfLiteModel]:
    """Returns the `create_model` of an architecture's module; see `shared_model.creator`."""
    return shared_model.creator(
        architecture, lambda parameters: TfLiteModel(architecture, parameters, source_module)
    )


def create_model(**parameters: Any) -> TfLiteModel:
    """Returns the model that `model_uri` names, of any architecture, like the OpenXLA suite.

    Raises:
      DefinitionError: the address is malformed, or names a model unknown to the suite.
    """
    uri = files.parse_uri(parameters.get("model_uri"))
    for name in ("bert", "vit"):
        module = importlib.import_module(f"{__package__}.{name}")
        if any(re.fullmatch(pattern, uri.source) for pattern, _ in module.ARCHITECTURE.sources):
            made: TfLiteModel = module.create_model(**parameters)
            return made
    raise DefinitionError(f"model_uri {uri.text!r}: the suite has no JAX model {uri.source}")


def _source_digest(module: str) -> str:
    """Returns the sha256 of a module's source, without importing it."""
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"no module {module}")
    return digest_of(Path(spec.origin).read_text(encoding="utf-8"))
