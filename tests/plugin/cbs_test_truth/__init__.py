"""Truth and reference of the numpy models: apart from the backend that they judge."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from openxla.benchmark.models.shared_model import as_tuple

REFERENCE = "cbs_test_truth:reference"


def reference(model: Any, inputs: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Truth in float64, reference as the model computes."""
    if hasattr(model, "in_float64"):
        return list(model.in_float64(*inputs)), list(as_tuple(model.forward(*inputs)))
    same_type = [np.asarray(value) for value in as_tuple(model.forward(*inputs))]
    wide = [value.astype(np.float64) for value in inputs]
    truth = as_tuple(model.forward(*wide))
    return [np.asarray(value, np.float64) for value in truth], same_type
