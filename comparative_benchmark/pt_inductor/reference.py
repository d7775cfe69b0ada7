"""Truth and reference of a PyTorch model, and what it costs."""

import copy
from collections.abc import Sequence
from typing import Any

import torch

from comparative_benchmark.backends import torch_modules as modules
from comparative_benchmark.backends.api import Array
from comparative_benchmark.backends.torch_modules import to_numpy
from comparative_benchmark.pt_inductor.cost import cost
from openxla.benchmark.models.pt.tensors import as_tensor
from openxla.benchmark.models.shared_model import as_tuple

__all__ = ["compute", "cost"]


def compute(model: Any, inputs: Sequence[Array]) -> tuple[list[Any], list[Any]]:
    """Returns the outputs of the model in float64, and eagerly in its own type.

    The float64 model holds the weights as the model holds them, so that for a 16-bit model only the
    computation differs, not the rounding of weights and inputs.
    """
    torch.set_grad_enabled(False)
    tensors = [as_tensor(value) for value in inputs]
    same_type = _run(model, tensors)
    wide = copy.deepcopy(model)
    for module in modules.of(wide):
        module.double()
    wide_tensors = [value.double() if value.is_floating_point() else value for value in tensors]
    return _run(wide, wide_tensors), same_type


def _run(model: Any, tensors: list[torch.Tensor]) -> list[Any]:
    return [to_numpy(value) for value in as_tuple(model.forward(*tensors))]
