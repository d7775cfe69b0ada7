"""Truth and reference of a model that TFLite runs, and what it costs: its own framework's.

A TFLite case is judged by the model behind its file, unquantised.
"""

import importlib
from collections.abc import Sequence
from typing import Any

from comparative_benchmark.backends.api import Array
from openxla.benchmark.artifacts.workload_cost import WorkloadCost
from openxla.benchmark.models.tflite.tflite_model import TfLiteModel


def compute(model: Any, inputs: Sequence[Array]) -> tuple[list[Any], list[Any]]:
    """Returns the outputs in float64, and op by op in the unquantised model's own type."""
    source, module = _source(model)
    outputs: tuple[list[Any], list[Any]] = module.compute(source, inputs)
    return outputs


def cost(model: Any, inputs: Sequence[Array]) -> WorkloadCost:
    """Returns what the unquantised model has to do."""
    source, module = _source(model)
    if not hasattr(module, "cost"):
        return WorkloadCost.unknown(f"{module.__name__} does not define a cost")
    found: WorkloadCost = module.cost(source, inputs)
    return found


def _source(model: Any) -> tuple[Any, Any]:
    """Returns the unquantised model, and the module that computes the truth of its framework."""
    source = model.source() if isinstance(model, TfLiteModel) else model
    framework = "tf_xla" if hasattr(source, "layer") else "jax_xla"
    return source, importlib.import_module(f"comparative_benchmark.{framework}.reference")
