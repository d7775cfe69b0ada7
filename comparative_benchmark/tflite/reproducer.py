"""TFLite: the file that the backend's own conversion process makes or finds."""

import shutil
from collections.abc import Iterator, Mapping
from typing import Any

from comparative_benchmark.backends.api import UnsupportedError
from comparative_benchmark.backends.reproducing import Command, Exported, ExportTask
from comparative_benchmark.tflite.export import described
from comparative_benchmark.tflite.export import export as export_file

_NOTE = (
    "The wheel does not contain `benchmark_model`: build it from LiteRT's source, or download a "
    "nightly binary."
)


def export(task: ExportTask) -> Exported:
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
