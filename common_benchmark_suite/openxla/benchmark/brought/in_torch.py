"""In a worker: a module of PyTorch that was brought."""

from collections.abc import Iterator, Sequence
from typing import Any

import ml_dtypes
import torch
from torch.utils._pytree import tree_leaves

from openxla.benchmark.brought import inputs
from openxla.benchmark.brought.inputs import Array, BroughtModel
from openxla.benchmark.brought.loading import Brought
from openxla.benchmark.brought.wanted import BroughtError
from openxla.benchmark.def_types import Parameters
from openxla.benchmark.models.pt.tensors import TORCH_DTYPES, as_tensor
from openxla.benchmark.models.shared_model import as_tuple


class TorchModel(torch.nn.Module, BroughtModel):
    """A module on positional arguments; its outputs are the tensors in what it returns."""

    def __init__(self, module: torch.nn.Module, parameters: Parameters) -> None:
        super().__init__()
        self.model_parameters = parameters
        self.example = self.file = None
        self.module = module
        self.eval().requires_grad_(False)

    def forward(self, *inputs: Any) -> Any:
        """Runs the module."""
        return plain(self.module(*map(as_tensor, inputs)))

    def as_array(self, value: Any) -> Array:
        """Returns a tensor as an array; bfloat16 through its bits."""
        return as_array(value) if isinstance(value, torch.Tensor) else super().as_array(value)

    def outputs_of(self, inputs: Sequence[Array], *, seed: int) -> list[Array]:
        """Returns the outputs of an eager run."""
        torch.manual_seed(seed)
        with torch.no_grad():
            outputs = as_tuple(self.forward(*inputs))
        return [self.as_array(value) for value in outputs]


def as_array(value: torch.Tensor) -> Array:
    """Returns a tensor as an array; bfloat16 through its bits."""
    host = value.detach().cpu().contiguous()
    if host.dtype == torch.bfloat16:
        bits: Array = host.view(torch.int16).numpy()
        return bits.view(ml_dtypes.bfloat16)
    array: Array = host.numpy()
    return array


def plain(output: Any) -> Any:
    """Returns the tensors in what a module returns: one, or a tuple in order."""
    if isinstance(output, torch.Tensor):
        return output
    tensors = tuple(leaf for leaf in tree_leaves(output) if isinstance(leaf, torch.Tensor))
    return tensors[0] if len(tensors) == 1 else tensors


def create_model(**parameters: Any) -> Any:
    """Returns the model of a file.

    Raises:
      BroughtError: it cannot be made, is no module, or holds weights of another type.
    """
    brought = Brought(parameters, torch.manual_seed)
    made = brought.make()
    if not isinstance(made, torch.nn.Module) and not inputs.follows_interface(made):
        raise BroughtError(
            f"{brought.place} returned a {type(made).__name__}, not a torch.nn.Module; if it uses "
            "another framework, set FRAMEWORK in the file"
        )

    def wrapped(module: torch.nn.Module) -> TorchModel:
        model = TorchModel(in_type(module, str(parameters["data_type"])), parameters)
        model.example, model.file = brought.example_inputs(), brought.place.file
        return model

    return inputs.with_inputs(made, parameters, wrapped)


def in_type(module: torch.nn.Module, data_type: str) -> torch.nn.Module:
    """Returns a module whose weights are of a type: those of float32 are rounded to it.

    Raises:
      BroughtError: some are of yet another type, or on no device.
    """
    due = TORCH_DTYPES[data_type]
    found = {tensor.dtype for tensor in _tensors(module) if tensor.is_floating_point()}
    if any(tensor.is_meta for tensor in _tensors(module)):
        raise BroughtError("its weights are on the `meta` device and have no values")
    if other := found - {due, torch.float32}:
        names = {value: key for key, value in TORCH_DTYPES.items()}
        known = names.get(min(other, key=str))
        way_out = "; return it in float32 with model.float()" if torch.float64 in other else ""
        hint = f"; pass --dtype {known}" if known else way_out
        raise BroughtError(f"its weights are {min(other, key=str)}, not {data_type}{hint}")
    return module.to(due)


def _tensors(module: torch.nn.Module) -> Iterator[torch.Tensor]:
    yield from module.parameters()
    yield from module.buffers()
