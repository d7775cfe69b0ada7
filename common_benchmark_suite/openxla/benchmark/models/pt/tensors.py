"""Names of types, arrays to tensors, and weights to modules, for PyTorch models."""

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

    A tensor is returned as it is, so that `forward` also takes what `preprocess` gives.
    """
    if isinstance(value, torch.Tensor):
        return value
    array = np.ascontiguousarray(value)
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(array if array.flags.writeable else array.copy())


def load_weights(module: torch.nn.Module, tensors: Mapping[str, Any], data_type: str) -> None:
    """Gives a module the weights of a checkpoint, cast to `data_type`.

    Raises:
      RuntimeError: the checkpoint lacks weights, has more, or has some of another shape.
    """
    dtype = TORCH_DTYPES[data_type]
    state = {name: as_tensor(tensor).to(dtype) for name, tensor in tensors.items()}
    module.load_state_dict(state, strict=True, assign=True)
