"""Weights of a checkpoint in the layout of networks without a library of layers."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from openxla.benchmark.models import checkpoints
from openxla.benchmark.models.shared_model import ArchitectureModel

_KERNEL_2D = (2, 3, 1, 0)  # [out, in, height, width] -> [height, width, in, out]
_KERNEL_1D = (2, 1, 0)  # [out, in, width] -> [width, in, out]
# Embedding tables, which are indexed, and GPT-2's matrices, which are already [in, out].
_AS_IT_IS = ("embeddings.", "embed_", "shared.", "relative_attention_bias", "transformer.")

Arrays = dict[str, npt.NDArray[np.float32]]


def arrays(model: ArchitectureModel) -> Arrays:
    """Returns the arrays of a checkpoint by name; matrices [in, out], kernels [..., in, out]."""
    tensors = checkpoints.load_tensors(model.architecture, model.checkpoint)
    # The other arrays are counters of batch norms.
    return {
        name: np.ascontiguousarray(value.transpose(_axes(name, value.ndim)))
        for name, value in tensors.items()
        if value.dtype == np.float32
    }


def config_of(model: ArchitectureModel) -> Mapping[str, Any]:
    """Returns the configuration of a model, in Hugging Face's keys."""
    return model.architecture.config(str(model.model_parameters["model_name"]))


def _axes(name: str, dimensions: int) -> tuple[int, ...]:
    if dimensions == 4:
        return _KERNEL_2D
    if dimensions == 3 and "conv" in name:
        return _KERNEL_1D
    if dimensions == 2 and not any(part in name for part in _AS_IT_IS):
        return (1, 0)
    return tuple(range(dimensions))
