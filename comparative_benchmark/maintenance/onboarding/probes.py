"""Inspections inside a worker, for the frameworks that it has imported; imports none itself."""

import gc
import importlib
import sys
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from openxla.benchmark.artifacts import array_files


def memory(
    *, module_path: str, parameters: Mapping[str, Any], inputs: Sequence[str], rounds: int = 3
) -> dict[str, Any]:
    """Creates, runs and drops a model repeatedly.

    Returns:
      `model_bytes`: increase in the size of the frameworks' arrays while the model exists;
      `held_bytes`: their size after each round; `alive`: whether the last model still exists after
      it was dropped.
    """
    module = importlib.import_module(module_path)
    values = [array_files.load(Path(path)) for path in inputs]
    gc.collect()
    before = held_bytes()
    held, model_bytes, alive = [], 0, False
    for _ in range(rounds):
        model = module.create_model(**parameters)
        outputs = model.forward(*values)
        model_bytes = max(model_bytes, held_bytes() - before)
        reference = weakref.ref(model)
        del model, outputs
        gc.collect()
        alive = reference() is not None
        held.append(held_bytes())
    return {"model_bytes": model_bytes, "held_bytes": held, "alive": alive}


def held_bytes() -> int:
    """Returns the size in bytes of all arrays of frameworks in this process, on any device."""
    total = 0
    if (torch := sys.modules.get("torch")) is not None:
        # Count storages, because views share them.
        storages = {
            storage.data_ptr(): storage.nbytes()
            for item in gc.get_objects()
            if issubclass(type(item), torch.Tensor) and item.device.type != "meta"
            for storage in [item.untyped_storage()]
        }
        total += sum(storages.values())
        if torch.cuda.is_available():
            total += torch.cuda.memory_allocated()
    if (jax := sys.modules.get("jax")) is not None:
        total += sum(item.nbytes for item in jax.live_arrays())
    if (tensorflow := sys.modules.get("tensorflow")) is not None:
        total += sum(
            item.shape.num_elements() * item.dtype.size
            for item in gc.get_objects()
            if issubclass(type(item), tensorflow.Variable) and item.shape.num_elements()
        )
    return total
