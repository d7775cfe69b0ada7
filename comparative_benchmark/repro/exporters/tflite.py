"""TFLite: the file, as the backend's own conversion process makes or finds it."""

import hashlib
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from comparative_benchmark.backends.api import PhaseTimer, UnsupportedError
from comparative_benchmark.repro.exported import Command, Exported, ExportTask
from comparative_benchmark.tflite import conversion_process
from openxla.benchmark.models.preprocessing import element_type_of

_NOTE = (
    "`benchmark_model` is built from LiteRT's source, or downloaded as a nightly binary; "
    "the wheel does not have it."
)


def export(task: ExportTask) -> Exported:
    """Writes `model.tflite`."""
    context = task.context
    uses_xnnpack = "no-xnnpack" not in context.options
    request = {
        "module_path": task.definition.module_path,
        "parameters": dict(task.definition.parameters),
        "compiler": context.compiler,
        "xnnpack": uses_xnnpack,
        "inputs": [
            {"shape": list(value.shape), "dtype": element_type_of(value.dtype)}
            for value in task.inputs
        ],
        "directory": str(context.work_dir),
    }
    found = _file(request, Path(context.work_dir) / "model.tflite", context.phase)
    shutil.copyfile(found["path"], task.directory / "model.tflite")
    resolver = "AUTO" if uses_xnnpack else "BUILTIN_WITHOUT_DEFAULT_DELEGATES"
    return Exported(
        script="run_tflite.py",
        settings={"threads": context.threads, "resolver": resolver},
        packages=("ai-edge-litert", "numpy"),
        files={"model.tflite": f"program and weights, in {found['precision']}; {found['origin']}"},
        commands=(
            Command(
                comment="Times it, by LiteRT's own tool, on numbers of its own.",
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
    """Yields what the conversion has changed of the model."""
    for name, value in found.get("notes", {}).items():
        yield f"Changed by the conversion: {name}, {value}."


def _file(request: Mapping[str, Any], path: Path, phase: PhaseTimer) -> Mapping[str, Any]:
    """Returns what the conversion answers; of a file that LiteRT can not run, what is known of it.

    Such a file is there before the conversion tries it out: it is what is to be shown.

    Raises:
      UnsupportedError: there is no file.
    """
    try:
        return conversion_process.convert(request, phase)
    except UnsupportedError as error:
        if not path.is_file():
            raise
        return {
            "path": str(path),
            "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
            "precision": request["compiler"],
            "origin": f"converted; {error}",
        }
