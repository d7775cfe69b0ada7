"""Float64 outputs of nearly the same model, which show how far rounding alone may move an output.

An index, a rounded pixel or a comparison may flip when a number next to a tie is rounded another
way. A single number, or a handful, may be small only because large terms cancel. Neither the truth
nor one reference run shows that; a few runs on slightly different weights and inputs do.
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
# So few numbers leave the error of a single reference run to chance.
FEW = 8
# How far weights and inputs move, in spacings of their type: computing in that type rounds by half.
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

    Nothing is written where a changed model cannot be run: outputs are then judged without.

    Returns:
      why a changed model could not be run; None if it could, or no output needs it.

    Args:
      folder: where the files go; made here if there are any.
      reference: `module:function` that computes truth and reference; its module may offer
        `changed_weights(model, random, spacings)`, a context in which the weights differ.
      compute: that function.
      model: what is computed.
      inputs: of the run.
      truth: its float64 outputs.
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
