"""OpenVINO: models in its own format, as its front ends convert them."""

from comparative_benchmark.backends.api import BackendContext
from comparative_benchmark.openvino import DEFAULT_PRECISION, WIDENED, front_ends, program
from comparative_benchmark.repro.exported import Exported, ExportTask
from comparative_benchmark.repro.exporters import generating

_NOTE = (
    "run.py prints the type that OpenVINO computes in; the suite refuses to measure a "
    "model that is not computed in its own."
)


def export(task: ExportTask) -> Exported:
    """Writes `model.xml` and `model.bin`; of a model that generates, `prefill` and `decode`."""
    converted, plan = front_ends.convert(task.model(), task.inputs, task.context.phase)
    element_type = program.element_type(converted[0])
    names = generating.names(plan, ".xml")
    files: dict[str, str] = {}
    for name, model in zip(names, converted, strict=True):
        path = task.directory / name
        program.save(model, path)
        files |= {name: "what is compiled", program.weights_of(path).name: f"weights of {name}"}
    properties = program.configuration(
        threads=task.context.threads,
        precision=_precision(task.context, element_type),
        cache_dir=None,
    )
    return Exported(
        script="run_openvino.py",
        settings={"properties": properties, "call": generating.call(plan, names)},
        packages=("openvino", "numpy", "ml_dtypes"),
        files=files,
        modules=generating.modules(plan),
        notes=(_NOTE,),
    )


def _precision(context: BackendContext, element_type: str) -> str | None:
    """Returns the type that the backend asks for."""
    if DEFAULT_PRECISION in context.options:
        return None
    return "f32" if WIDENED in context.options else element_type
