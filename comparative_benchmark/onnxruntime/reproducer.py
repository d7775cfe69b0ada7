"""ONNX Runtime: ONNX files, with the weights beside them."""

from comparative_benchmark.backends import onnx_export, reproducing
from comparative_benchmark.backends.reproducing import Exported, ExportTask
from comparative_benchmark.onnxruntime import session

_NOTE = (
    "ONNX Runtime runs operators that it has no 16-bit kernel for in float32 and says "
    "nothing; the suite's check for that is not part of run.py."
)


def export(task: ExportTask) -> Exported:
    """Writes `model.onnx`; of a model that generates, `prefill.onnx` and `decode.onnx`."""
    context = task.context
    paths, plan = onnx_export.write(task.model(), task.inputs, task.directory, context.phase)
    names = [path.name for path in paths]
    level = session.options(context.compiler, context.threads).graph_optimization_level
    files = dict.fromkeys(names, "what is run")
    files |= {f"{name}.data": f"weights of {name}" for name in names}
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
