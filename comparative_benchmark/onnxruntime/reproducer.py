"""ONNX Runtime: ONNX files, with the weights in separate files."""

import shutil
from typing import Any

from comparative_benchmark.backends import reproducing
from comparative_benchmark.backends.frameworks import onnx_export
from comparative_benchmark.backends.reproducing import Exported, ExportTask
from comparative_benchmark.onnxruntime import session

_NOTE = (
    "ONNX Runtime silently uses float32 for operators without a 16-bit kernel; run.py does not "
    "include the suite's check for this."
)


def export(task: ExportTask) -> Exported:
    """Writes `model.onnx`; for a model that generates, `prefill.onnx` and `decode.onnx`."""
    context = task.context
    model = task.model()
    if hasattr(model, "write_onnx"):
        names, plan = ["model.onnx"], None
        beside = _copy(model, task)
    else:
        paths, plan = onnx_export.write(model, task.inputs, task.directory, context.phase)
        names = [path.name for path in paths]
        beside = [f"{name}.data" for name in names]
    level = session.options(context.compiler, context.threads).graph_optimization_level
    files = dict.fromkeys(names, "the program to run")
    files |= dict.fromkeys(beside, "its weights")
    return Exported(
        settings={
            "level": level.name,
            "threads": context.threads,
            "call": reproducing.calls(plan, names),
        },
        packages=("onnxruntime", "numpy", "ml_dtypes"),
        # A model without large weights has no file for them.
        files={name: text for name, text in files.items() if (task.directory / name).exists()},
        modules=reproducing.modules(plan),
        notes=(_NOTE,),
    )


def _copy(model: Any, task: ExportTask) -> list[str]:
    """Copies a user's file; returns the names of the files with its weights."""
    path, *beside = model.write_onnx(task.context.work_dir, task.inputs)
    shutil.copyfile(path, task.directory / "model.onnx")
    names = [str(file.relative_to(path.parent)) for file in beside]
    for file, name in zip(beside, names, strict=True):
        (task.directory / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, task.directory / name)
    return names
