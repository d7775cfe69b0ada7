"""Converts models from their framework to OpenVINO, to run them or for a reproducer."""

import gc
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from comparative_benchmark.backends import exported_programs
from comparative_benchmark.backends.api import Array, PhaseTimer, UnsupportedError
from comparative_benchmark.backends.exported_programs import Exported, ExportTask, program_names
from comparative_benchmark.backends.frameworks import torch_export
from comparative_benchmark.backends.resident_programs import GenerationPlan
from comparative_benchmark.openvino import program
from comparative_benchmark.openvino.program import ov, type_of
from openxla.benchmark.models.shared_model import as_tuple

INPUT, OUTPUT = "input_{}", "output_{}"


def write(
    model: Any, inputs: Sequence[Array], directory: Path, phase: PhaseTimer
) -> tuple[list[Path], str, GenerationPlan | None]:
    """Converts a model and writes it.

    Each program has the shapes and types of its inputs. Inputs are named `input_0`, `input_1` and
    so on, outputs `output_0` and so on, in the order of the model's.

    Args:
      model: a PyTorch model, exported first, or a TensorFlow one, traced to a graph first (phase
        `trace`), or a user's ONNX or TFLite file; the conversion itself is the phase `lower`.
      inputs: one array for each argument of the model.
      directory: directory for the files (`load`).
      phase: times the phases.

    Returns:
      `model.xml`; or, for a PyTorch model that generates, `prefill.xml` and `decode.xml`. Then the
      model's floating-point type, and how to call two programs.

    Raises:
      UnsupportedError: no front end accepts or converts the model, or an output is an input.
    """
    plan: GenerationPlan | None = None
    if hasattr(model, "write_onnx"):
        converted = [_from_onnx(model, inputs, directory, phase)]
    elif hasattr(model, "tflite_file"):
        with phase("lower"), torch_export.refusing("OpenVINO's front end for TFLite"):
            converted = [_from_tflite(model, inputs)]
    elif torch_export.holds_modules(model):
        converted, plan = _from_torch(model, inputs, phase)
    elif "tensorflow" in sys.modules and hasattr(model, "forward"):
        converted = [_from_tensorflow(model, inputs, phase)]
    else:
        raise UnsupportedError(
            f"OpenVINO has no front end for {type(model).__name__}: choose a model in PyTorch or "
            "TensorFlow"
        )
    for item in converted:
        _check_outputs(item)
    paths = [directory / f"{name}.xml" for name in program_names(plan)]
    with phase("load"):
        precision = program.element_type(converted[0])
        for item, path in zip(converted, paths, strict=True):
            program.save(item, path)
        # The framework's copy of the weights would count towards the program's memory.
        del model, converted, item
        gc.collect()
    return paths, precision, plan


def _check_outputs(converted: Any) -> None:
    """Raises UnsupportedError for an output that is an input: both would be the same tensor."""
    for index, port in enumerate(converted.outputs):
        if port.get_node().input_value(0).get_node().get_type_name() == "Parameter":
            raise UnsupportedError(
                f"OpenVINO cannot bind output {index}, which is an input; return only new arrays"
            )


def _from_onnx(model: Any, inputs: Sequence[Array], directory: Path, phase: PhaseTimer) -> Any:
    # A folder that is not in a reproducer; for the reason, see `exported_programs.write_onnx`.
    with tempfile.TemporaryDirectory(dir=directory) as folder:
        with phase("load"):
            path, *_ = model.write_onnx(Path(folder), inputs)
        with phase("lower"), torch_export.refusing("OpenVINO's front end for ONNX"):
            return _name_ports(ov.convert_model(path))


def _from_tflite(model: Any, inputs: Sequence[Array]) -> Any:
    """Converts a file; its inputs and outputs are found by the names of the file's tensors."""
    converted = ov.convert_model(model.tflite_file)
    for names, ports, pattern in (
        (model.input_names, converted.inputs, INPUT),
        (model.output_names, converted.outputs, OUTPUT),
    ):
        for port in ports:
            place = next(i for i, name in enumerate(names) if name in port.get_names())
            port.get_tensor().set_names({pattern.format(place)})
    converted.reshape({INPUT.format(i): list(v.shape) for i, v in enumerate(inputs)})
    return converted


def _from_torch(
    model: Any, inputs: Sequence[Array], phase: PhaseTimer
) -> tuple[list[Any], GenerationPlan | None]:
    from comparative_benchmark.backends.frameworks import torch_modules

    # The model itself would be converted through TorchScript, which has operations that OpenVINO
    # cannot convert (`aten::diff` in Llama).
    exported, plan = torch_modules.export_programs(model, inputs, phase)
    with phase("lower"), torch_export.refusing("OpenVINO's front end for PyTorch"):
        return [_convert_exported(item) for item in exported], plan


def _convert_exported(exported: Any) -> Any:
    """Converts an exported program, with the shapes and types that it was exported with."""
    from comparative_benchmark.openvino import rewrites

    rewrites.apply(exported)
    names = exported.graph_signature.user_inputs
    values = {node.name: node.meta["val"] for node in exported.graph.nodes if node.name in names}
    signature = [
        (list(values[name].shape), type_of(str(values[name].dtype).removeprefix("torch.")))
        for name in names
    ]
    converted = ov.convert_model(exported, input=signature)
    return _name_ports(converted)


def _name_ports(converted: Any) -> Any:
    for ports, pattern in ((converted.inputs, INPUT), (converted.outputs, OUTPUT)):
        for index, port in enumerate(ports):
            port.get_tensor().set_names({pattern.format(index)})
    return converted


def _from_tensorflow(model: Any, inputs: Sequence[Array], phase: PhaseTimer) -> Any:
    import tensorflow as tf

    specs = [
        tf.TensorSpec(value.shape, tf.as_dtype(value.dtype.name), name=INPUT.format(index))
        for index, value in enumerate(inputs)
    ]

    # Outputs by name, because OpenVINO does not keep their order.
    def forward(*arguments: Any) -> dict[str, Any]:
        outputs = as_tuple(model.forward(*arguments))
        return {OUTPUT.format(index): output for index, output in enumerate(outputs)}

    with phase("trace"):
        traced = tf.function(forward, autograph=False).get_concrete_function(*specs)
    with phase("lower"), torch_export.refusing("OpenVINO's front end for TensorFlow"):
        return ov.convert_model(traced)


_NOTE = (
    "run.py prints the data type in which OpenVINO computes. If it is not the model's type, the "
    "suite measures the model only if an option of the compiler allows this."
)


def export_reproducer(task: ExportTask) -> Exported:
    """Writes `model.xml` and `model.bin`; for a model that generates, `prefill` and `decode`."""
    context = task.context
    paths, element_type, plan = write(task.model(), task.inputs, task.directory, context.phase)
    names = [path.name for path in paths]
    properties = program.configuration(
        threads=context.threads,
        precision=program.chosen_precision(context.options, element_type),
        cache_dir=None,
    )
    return Exported(
        settings={"properties": properties, "call": exported_programs.calls(plan, names)},
        packages=("openvino", "numpy", "ml_dtypes"),
        files={
            **dict.fromkeys(names, "the program to compile"),
            **{program.weights_of(path).name: f"weights of {path.name}" for path in paths},
        },
        modules=exported_programs.modules(plan),
        notes=(_NOTE,),
    )
