"""Inputs to calibrate quantisation; none of them is measured or verified later."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from openxla.benchmark.def_types import DefinitionError, Parameters
from openxla.benchmark.models.architectures import Architecture
from openxla.benchmark.models.architectures.base import integer


def input_sets(
    architecture: Architecture, parameters: Parameters, checkpoint: Path, count: int
) -> Iterator[tuple[npt.NDArray[np.generic], ...]]:
    """Yields `count` input sets of a model, as its `forward` takes them.

    They are the rows after the default input in a larger batch: each row is another window of the
    text, or the picture shifted. The default input is excluded.

    Raises:
      DefinitionError: an input does not depend on the batch size, so there is only one set.
    """
    batch = integer(parameters, "batch_size")
    larger = {**parameters, "batch_size": (count + 1) * batch}
    raw: Any = architecture.default_inputs(larger)
    arrays = architecture.preprocess(raw, larger, checkpoint)
    for position, array in enumerate(arrays):
        if array.ndim == 0 or array.shape[0] != larger["batch_size"]:
            raise DefinitionError(
                f"{architecture.name}: input {position} is {array.shape}, which does not grow with "
                "the batch; add a method `calibration_inputs(count)` to the model"
            )
    for index in range(1, count + 1):
        rows = slice(index * batch, (index + 1) * batch)
        yield tuple(np.ascontiguousarray(array[rows]) for array in arrays)
