"""OpenVINO: models in its own format, as its front ends convert them."""

from comparative_benchmark.backends import reproducing
from comparative_benchmark.backends.reproducing import Exported, ExportTask
from comparative_benchmark.openvino import front_ends, program

_NOTE = (
    "run.py prints the data type in which OpenVINO computes. If it is not the model's type, the "
    "suite does not measure the model."
)


def export(task: ExportTask) -> Exported:
    """Writes `model.xml` and `model.bin`; for a model that generates, `prefill` and `decode`."""
    context = task.context
    paths, element_type, plan = front_ends.write(
        task.model(), task.inputs, task.directory, context.phase
    )
    names = [path.name for path in paths]
    properties = program.configuration(
        threads=context.threads,
        precision=program.chosen_precision(context.options, element_type),
        cache_dir=None,
    )
    return Exported(
        settings={"properties": properties, "call": reproducing.calls(plan, names)},
        packages=("openvino", "numpy", "ml_dtypes"),
        files={
            **dict.fromkeys(names, "the program to compile"),
            **{program.weights_of(path).name: f"weights of {path.name}" for path in paths},
        },
        modules=reproducing.modules(plan),
        notes=(_NOTE,),
    )
