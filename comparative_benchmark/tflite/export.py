"""Makes or finds the TFLite file of a model, in a child process, also for reproducers."""

import importlib
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from comparative_benchmark.backends import child_process
from comparative_benchmark.backends.api import Array, ModelDefinition, PhaseTimer, UnsupportedError
from comparative_benchmark.backends.exported_programs import Command, Exported, ExportTask
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


def export_file(
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
    """Makes or finds the file in this process; see `export_file`."""
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


_NOTE = (
    "The wheel does not contain `benchmark_model`: build it from LiteRT's source, or download a "
    "nightly binary."
)


def export_reproducer(task: ExportTask) -> Exported:
    """Writes `model.tflite`."""
    context = task.context
    uses_xnnpack = "no-xnnpack" not in context.options
    found = _file(task, uses_xnnpack)
    shutil.copyfile(found["path"], task.directory / "model.tflite")
    resolver = "AUTO" if uses_xnnpack else "BUILTIN_WITHOUT_DEFAULT_DELEGATES"
    return Exported(
        settings={"threads": context.threads, "resolver": resolver},
        packages=("ai-edge-litert", "numpy"),
        files={"model.tflite": f"program and weights, in {found['precision']}; {found['origin']}"},
        commands=(
            Command(
                comment="Time it with LiteRT's own tool, which generates its inputs.",
                arguments=(
                    *("benchmark_model", "--graph=model.tflite"),
                    f"--num_threads={context.threads}",
                    f"--use_xnnpack={str(uses_xnnpack).lower()}",
                ),
                is_packaged=False,
            ),
        ),
        notes=(_NOTE, *_changes(found)),
        program_sha256=found["sha256"],
    )


def _changes(found: Mapping[str, Any]) -> Iterator[str]:
    """Yields how the conversion changed the model."""
    for name, value in found.get("notes", {}).items():
        yield f"Changed by the conversion: {name}, {value}."


def _file(task: ExportTask, uses_xnnpack: bool) -> Mapping[str, Any]:
    """Returns the result of the conversion, or the file's facts if LiteRT cannot run it.

    The conversion writes the file before it tries to run it, so a reproducer can include it.

    Raises:
      UnsupportedError: there is no file.
    """
    context = task.context
    try:
        return export_file(
            task.definition,
            task.inputs,
            context.compiler,
            context.work_dir,
            context.phase,
            xnnpack=uses_xnnpack,
        )
    except UnsupportedError as error:
        path = context.work_dir / "model.tflite"
        if not path.is_file():
            raise
        return {**described(path, context.compiler), "origin": f"converted; {error}"}
