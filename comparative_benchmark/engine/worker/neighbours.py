"""Float64 outputs of nearby models, which show how far rounding alone can move an output.

An index, a rounded pixel or a comparison may flip if a value next to a tie is rounded differently.
One or a few numbers may be small only because large terms cancel. Neither the truth nor a single
reference run reveals this; a few runs on slightly different weights and inputs do.
"""

import contextlib
import importlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np

from comparative_benchmark.backends.api import Array, Reference
from openxla.benchmark.user_models.programs.program_model import rounded

COUNT = 8
# With so few numbers, the error of a single reference run is left to chance.
FEW = 8
# Perturbation of weights and inputs, in spacings of their type: rounding moves by half of one.
SPACINGS = 2.0


def save(
    folder: Path,
    *,
    reference: str,
    compute: Reference,
    model: Any,
    inputs: Sequence[Array],
    truth: Sequence[Array],
) -> str | None:
    """Writes `output_<n>.npy`, stacked along a new first axis, for each output that needs it.

    Writes nothing if a perturbed model cannot be run; outputs are then verified without neighbours.

    Args:
      folder: folder for the files; created if there are any.
      reference: `module:function` that computes truth and reference; its module may define
        `changed_weights(model, random, spacings)`, a context in which the weights differ.
      compute: that function.
      model: the model.
      inputs: inputs of the run.
      truth: float64 outputs of the run.

    Returns:
      Why a perturbed model could not be run; None if it could, or no output needs it.
    """
    wanted = [index for index, value in enumerate(truth) if _needs(np.asarray(value))]
    if not wanted:
        return None
    module = importlib.import_module(reference.partition(":")[0])
    changed = getattr(module, "changed_weights", _unchanged)
    own: Callable[..., Any] | None = getattr(model, "truth_and_reference", None)
    found: dict[int, list[Array]] = {index: [] for index in wanted}
    reason = "its outputs change their shape"
    for seed in range(COUNT):
        random = np.random.Generator(np.random.Philox(seed))
        try:
            with changed(model, random, SPACINGS):
                moved = rounded(inputs, spacings=SPACINGS, seed=seed)
                outputs, _ = own(moved) if own is not None else compute(model, moved)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"[:300]
            continue
        if [np.shape(value) for value in outputs] != [np.shape(value) for value in truth]:
            continue
        for index in wanted:
            found[index].append(np.asarray(outputs[index]))
    for index, values in found.items():
        if values:
            folder.mkdir(parents=True, exist_ok=True)
            np.save(folder / f"output_{index}.npy", np.stack(values), allow_pickle=False)
    return None if any(found.values()) else reason


def _needs(value: Array) -> bool:
    if value.dtype.kind in "iub":
        return value.size > 0
    return 0 < value.size <= FEW


def _unchanged(*_: object) -> AbstractContextManager[None]:
    return contextlib.nullcontext()
