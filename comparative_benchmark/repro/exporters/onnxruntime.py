"""ONNX Runtime: ONNX files, with the weights beside them."""

from comparative_benchmark.backends import generation_export, onnx_export, torch_export
from comparative_benchmark.onnxruntime import session
from comparative_benchmark.repro.exported import Exported, ExportTask
from comparative_benchmark.repro.exporters import generating

_NOTE = (
    "ONNX Runtime runs operators that it has no 16-bit kernel for in float32 and says "
    "nothing; the suite's check for that is not part of run.py."
)


def export(task: ExportTask) -> Exported:
    """Writes `model.onnx`; of a model that generates, `prefill.onnx` and `decode.onnx`."""
    context, model = task.context, task.model()
    plan = None
    if generation_export.is_generator(model):
        programs, plan = generation_export.export(model, task.inputs, context.phase)
    else:
        programs = [torch_export.export(model, task.inputs, context.phase)]
    names = generating.names(plan, ".onnx")
    for name, program in zip(names, programs, strict=True):
        onnx_export.save(onnx_export.to_onnx(program), task.directory / name)
    level = session.options(context.compiler, context.threads).graph_optimization_level
    files = dict.fromkeys(names, "what is run")
    files |= {f"{name}.data": f"weights of {name}" for name in names}
    return Exported(
        script="run_onnxruntime.py",
        settings={
            "level": level.name,
            "threads": context.threads,
            "call": generating.call(plan, names),
        },
        packages=("onnxruntime", "numpy", "ml_dtypes"),
        # A model without large weights has no file for them.
        files={name: text for name, text in files.items() if (task.directory / name).exists()},
        modules=generating.modules(plan),
        notes=(_NOTE,),
    )
