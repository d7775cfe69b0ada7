"""In a worker: models made by `create_model_and_input_data()` of torchao's guide."""

from typing import Any

import ml_dtypes
import torch

from openxla.benchmark.def_types import DefinitionError
from openxla.benchmark.models.model_interfaces import InferenceModel
from openxla.benchmark.models.pt.tensors import TORCH_DTYPES, as_tensor
from openxla.benchmark.operators import guide_functions


class GuideModel(torch.nn.Module, InferenceModel):
    """A user's module, with the input that was made for it."""

    def __init__(self, layer: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        super().__init__()
        self.layer = layer.eval().requires_grad_(requires_grad=False)
        self._example = inputs

    def generate_default_inputs(self) -> Any:
        """Returns the input that was made with the module."""
        return self._example

    def preprocess(self, raw_input: Any) -> Any:
        """Returns the arrays of tensors."""
        return tuple(map(_as_array, raw_input))

    def forward(self, *inputs: Any) -> Any:
        """Runs the module."""
        return self.layer(*map(as_tensor, inputs))


def made(
    name: str, shape: tuple[int, int, int], data_type: str
) -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    """Returns the module and the input that the function makes for m, k and n.

    Raises:
      DefinitionError: our branches of the function do not know the name.
      TypeError: the function returns something else.
    """
    create = guide_functions.module().create_model_and_input_data
    pair = create(name, *shape, TORCH_DTYPES[data_type], "cpu")
    is_pair = isinstance(pair, tuple) and len(pair) == 2
    if not (is_pair and isinstance(pair[0], torch.nn.Module)):
        raise TypeError("expected a torch.nn.Module and its input")
    return pair[0], tuple(pair[1]) if isinstance(pair[1], tuple | list) else (pair[1],)


def create_model(
    *, model_name: str, data_type: str, m: int, k: int, n: int, functions_sha256: str
) -> GuideModel:
    """Returns the model of the function, with its input.

    Raises:
      DefinitionError: the file has changed since the run was planned, or does not make the model.
    """
    if guide_functions.digest() != functions_sha256:
        raise DefinitionError(f"{guide_functions.FILE} has changed since this run was planned")
    return GuideModel(*made(model_name, (m, k, n), data_type))


def _as_array(tensor: torch.Tensor) -> Any:
    """Returns a tensor as an array; bfloat16 through its bits."""
    host = tensor.detach().cpu().contiguous()
    if host.dtype == torch.bfloat16:
        return host.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return host.numpy()
