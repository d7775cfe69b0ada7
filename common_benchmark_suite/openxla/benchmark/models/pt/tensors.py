"""Type names, and conversion of arrays and weights, for PyTorch models."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import torch

TORCH_DTYPES: Mapping[str, torch.dtype] = MappingProxyType(
    {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
)


def as_tensor(value: Any) -> torch.Tensor:
    """Returns a tensor with the content of an array; bfloat16 through its bits.

    Tensors are returned unchanged, so that `forward` also takes the results of `preprocess`.
    """
    if isinstance(value, torch.Tensor):
        return value
    array = np.ascontiguousarray(value)
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(array if array.flags.writeable else array.copy())


def load_weights(module: torch.nn.Module, tensors: Mapping[str, Any], data_type: str) -> None:
    """Loads the weights of a checkpoint into a module, cast to `data_type`.

    Raises:
      RuntimeError: weights are missing, surplus, or of another shape.
    """
    dtype = TORCH_DTYPES[data_type]
    state = {name: as_tensor(tensor).to(dtype) for name, tensor in tensors.items()}
    module.load_state_dict(state, strict=True, assign=True)
