"""Makes or finds the TFLite file of a model, in a child process."""

import importlib
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from comparative_benchmark.backends import child_process
from comparative_benchmark.backends.api import (
    Array,
    ModelDefinition,
    PhaseTimer,
    UnsupportedError,
)
from comparative_benchmark.tflite import BACKEND
from openxla.benchmark.def_types import TensorSpec
from openxla.benchmark.files import sha256_of
from openxla.benchmark.models.checkpoints import CheckpointError
from openxla.benchmark.models.preprocessing import element_type_of, numpy_dtype
from openxla.benchmark.models.tflite import conversion
from openxla.benchmark.models.tflite.tflite_model import TfLiteModel

_DIES = (
    "LiteRT crashes on the int8 file of this model (signal {signal}), as it does if a model "
    "divides values of very different ranges; choose the compiler dynamic-range, or the model in "
    "TensorFlow"
)


def export(
    definition: ModelDefinition,
    inputs: Sequence[Array],
    compiler: str,
    directory: Path,
    phase: PhaseTimer,
    *,
    xnnpack: bool = True,
) -> dict[str, Any]:
    """Returns the path of a model's file, its properties, and what made it.

    Args:
      definition: definition of the model.
      inputs: arrays of the shapes and types that the file takes.
      compiler: a compiler of the backend.
      directory: existing directory for a new file `model.tflite`.
      phase: times the phases of the process.
      xnnpack: whether the file is to run with XNNPACK.

    Raises:
      UnsupportedError: the compiler does not support such a model, TFLite cannot hold the model in
        that way, or a published file is missing.
      MemoryError: the process was killed, as by the kernel when memory runs out.
      RuntimeError: the conversion failed; the message is the child's.
    """
    if definition.parameters.get("program") == "TFLite":
        if compiler != "native":
            raise UnsupportedError(
                f"{compiler} converts models, but a .tflite file has a fixed precision: choose "
                "native"
            )
        path = Path(definition.parameters["source"])
        return {**described(path, "fp32"), "origin": "brought", "versions": {}}
    specs = specs_of(inputs)
    arguments = {
        "definition": attrs.asdict(definition),
        "inputs": [{"shape": list(spec.shape), "dtype": spec.dtype} for spec in specs],
        "compiler": compiler,
        "directory": str(directory),
        "xnnpack": xnnpack,
    }
    found: dict[str, Any]
    found, _ = child_process.call(
        f"{__name__}:export_here", arguments, phase, name="the conversion process"
    )
    return found


def specs_of(inputs: Sequence[Array]) -> list[TensorSpec]:
    """Returns shapes and element types of arrays."""
    return [TensorSpec(shape=value.shape, dtype=element_type_of(value.dtype)) for value in inputs]


def export_here(
    channel: child_process.Channel,
    definition: Mapping[str, Any],
    inputs: Sequence[Mapping[str, Any]],
    compiler: str,
    directory: str,
    xnnpack: bool,
) -> dict[str, Any]:
    """Makes or finds the file in this process; see `export`."""
    with channel.phase("import"):
        importlib.import_module(definition["module_path"])
    try:
        with channel.phase("load"):
            model = ModelDefinition(**definition).create()
        if isinstance(model, TfLiteModel):
            return _given(model, compiler, channel.phase)
        with channel.phase("import"):
            importlib.import_module("tensorflow")
        specs = [TensorSpec(**item) for item in inputs]
        precision = BACKEND.compiler(compiler).precision or "fp32"
        notes: dict[str, Any] = {}
        with tempfile.TemporaryDirectory(dir=directory) as scratch:
            content = conversion.convert(
                model, specs, precision, Path(scratch), phase=channel.phase, notes=notes
            )
    except (conversion.NotConvertibleError, CheckpointError) as error:
        raise UnsupportedError(str(error)) from error
    path = Path(directory) / "model.tflite"
    path.write_bytes(content)
    if precision == "int8":
        # Some int8 files crash the process that loads or runs them.
        with channel.unsupported_if_killed(_DIES):
            _probe(path, specs, xnnpack=xnnpack)
    return {
        **described(path, precision),
        "origin": "converted",
        "versions": conversion.versions(),
        "notes": notes,
    }


def described(path: Path, precision: str) -> dict[str, Any]:
    """Returns facts about the file: path, digest, size, and precision."""
    return {
        "path": str(path),
        "sha256": sha256_of(path),
        "size_bytes": path.stat().st_size,
        "precision": precision,
    }


def _probe(path: Path, inputs: Sequence[TensorSpec], *, xnnpack: bool) -> None:
    """Loads and runs a file once, on zeros.

    Raises:
      UnsupportedError: LiteRT refuses the file.
    """
    from openxla.benchmark.models.tflite.program import Program

    try:
        program = Program(path, threads=1, xnnpack=xnnpack)
        program.set_inputs([np.zeros(spec.shape, numpy_dtype(spec.dtype)) for spec in inputs])
        program.invoke()
    except RuntimeError as error:
        hint = "; choose int8+no-xnnpack" if xnnpack else ""
        raise UnsupportedError(
            f"LiteRT cannot run the int8 file of this model: {error}{hint}"
        ) from error


def _given(model: TfLiteModel, compiler: str, phase: PhaseTimer) -> dict[str, Any]:
    """Returns the file of a case that is a file, in its own precision."""
    precision = model.uri.precision
    fitting = next(
        info.name
        for info in BACKEND.compilers
        if info.name != "native" and (info.precision or "fp32") == precision
    )
    if compiler not in ("native", fitting):
        raise UnsupportedError(
            f"the case is a file in {precision}, which no compiler can change: choose "
            f"--backend tflite or tflite:{fitting}"
        )
    with phase("prepare"):
        file = model.file()
    return {
        "path": str(file.path),
        "sha256": file.sha256,
        "size_bytes": file.size_bytes,
        "precision": precision,
        "origin": file.origin,
        "versions": file.notes.get("converter", {}),
        "notes": {name: value for name, value in file.notes.items() if name != "converter"},
    }
