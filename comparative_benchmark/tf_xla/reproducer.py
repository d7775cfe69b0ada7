"""TensorFlow: a SavedModel, with the weights as its variables."""

from typing import Any

import tensorflow as tf

from comparative_benchmark.backends.reproducing import Exported, ExportTask
from openxla.benchmark.models.shared_model import as_tuple

# Argument `jit_compile` of the reproducer's function, by compiler.
_JIT: dict[str, bool | None] = {"xla": True, "graph": None, "eager": None}

_NOTE = (
    "The measurement ran the model's own function. The SavedModel contains the graph that "
    "TensorFlow traced, so the reproducer does not include the tracing."
)


def export(task: ExportTask) -> Exported:
    """Writes `saved_model`, whose function `run` takes the inputs by position."""
    tf.config.set_visible_devices([], "GPU")
    model = task.model()
    specs = [
        tf.TensorSpec(value.shape, tf.as_dtype(value.dtype.name), name=f"input_{index}")
        for index, value in enumerate(task.inputs)
    ]

    def positional(*arguments: Any) -> tuple[Any, ...]:
        # An output that is an input or a variable would not be kept as an output.
        return tuple(tf.identity(value) for value in as_tuple(model.forward(*arguments)))

    module = tf.Module()
    module.run = tf.function(positional, input_signature=specs)
    # A SavedModel keeps only attributes of its module, so add the captured variables.
    module.weights = list(module.run.get_concrete_function().variables)
    tf.saved_model.save(module, str(task.directory / "saved_model"))
    notes = [_NOTE]
    if task.context.compiler == "eager":
        notes.append(
            "The measurement ran op by op. A graph cannot do that, so run.py runs the whole graph."
        )
    return Exported(
        settings={"threads": task.context.threads, "jit_compile": _JIT[task.context.compiler]},
        packages=("tensorflow", "numpy", "ml_dtypes"),
        files={"saved_model": "the program to compile; its weights are its variables"},
        notes=tuple(notes),
    )
