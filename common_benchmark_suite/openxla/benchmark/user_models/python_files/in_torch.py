"""In a worker: a user's PyTorch module."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import ModuleType
from typing import Any

import ml_dtypes
import torch
from torch.utils import _pytree as pytree

from openxla.benchmark.def_types import Parameters
from openxla.benchmark.models.pt.tensors import TORCH_DTYPES, as_tensor
from openxla.benchmark.models.shared_model import as_tuple
from openxla.benchmark.training.in_torch import TrainableModel
from openxla.benchmark.user_models import inputs
from openxla.benchmark.user_models.inputs import Array, UserModel
from openxla.benchmark.user_models.model_options import UserModelError
from openxla.benchmark.user_models.python_files.loading import UserFile
from openxla.benchmark.user_models.python_files.training import OwnTrainingModel


class TorchTrees:
    """`torch.utils._pytree`, in which libraries register their own containers."""

    def flatten(
        self, tree: Any, is_leaf: Callable[[Any], bool]
    ) -> tuple[list[tuple[Sequence[Any], Any]], Any]:
        """See `Trees`."""
        flat: Any = pytree.tree_flatten_with_path(tree, is_leaf)
        return flat  # type: ignore[no-any-return]

    def unflatten(self, leaves: list[Any], structure: Any) -> Any:
        """See `Trees`."""
        return pytree.tree_unflatten(leaves, structure)

    def register(self, dataclass: type) -> None:
        """See `Trees`."""
        # `__init__` sets fields that it does not take as arguments.
        fields: Any = dataclasses.fields(dataclass)
        pytree.register_dataclass(
            dataclass,
            field_names=[field.name for field in fields if field.init],
            drop_field_names=[field.name for field in fields if not field.init],
        )


class TorchModel(torch.nn.Module, UserModel):
    """A module on the user's arguments; its outputs are the tensors in the return value."""

    trees = TorchTrees()

    def __init__(self, module: torch.nn.Module, parameters: Parameters) -> None:
        super().__init__()
        self.model_parameters = parameters
        self.module = module
        self.eval().requires_grad_(False)

    def forward(self, *inputs: Any) -> Any:
        """Runs the module."""
        return plain(self.call(self.module, [as_tensor(value) for value in inputs]))

    def called(self) -> Any:
        """Returns the module's `forward`."""
        return self.module.forward

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
    """Returns the tensors in a module's return value: one, or a tuple in order."""
    if isinstance(output, torch.Tensor):
        return output
    tensors = tuple(leaf for leaf in pytree.tree_leaves(output) if isinstance(leaf, torch.Tensor))
    return tensors[0] if len(tensors) == 1 else tensors


class TorchTrainingModel(OwnTrainingModel, TrainableModel):
    """A module, trained with the loss in its file."""

    trees = TorchTrees()

    def __init__(self, module: torch.nn.Module, brought: UserFile, parameters: Parameters) -> None:
        super().__init__()
        self.take_loss(brought, parameters)
        self.network = self.masters = module.eval()
        named = module.named_parameters()
        self.trained = [n for n, p in named if p.requires_grad and p.is_floating_point()]
        self.judged = self.trained
        if not self.trained:
            raise UserModelError(f"{brought.place} has no parameters that require gradients")

    def loss_module(self) -> torch.nn.Module:
        """See `TrainableModel`."""
        return _FileLoss(self)

    def module_of(self, network: Any) -> torch.nn.Module:
        """Returns the module itself."""
        module: torch.nn.Module = network
        return module

    def as_array(self, value: Any) -> Array:
        """Returns a tensor as an array."""
        return as_array(value) if isinstance(value, torch.Tensor) else super().as_array(value)

    def outputs_of(self, inputs: Sequence[Array], *, seed: int) -> list[Array]:
        """Returns the outputs of the steps."""
        torch.manual_seed(seed)
        return [self.as_array(value) for value in as_tuple(self.forward(*inputs))]


class _FileLoss(torch.nn.Module):
    """A user's model and loss as one module."""

    def __init__(self, model: TorchTrainingModel) -> None:
        super().__init__()
        self.network = model.network
        self._loss = model.file_loss

    def forward(self, *batch: torch.Tensor) -> torch.Tensor:
        """Returns the loss of a batch."""
        loss: torch.Tensor = self._loss.of(self.network, batch)
        return loss


def create_model(**parameters: Any) -> Any:
    """Returns the model of a file; its code runs with gradients enabled, as in a script.

    Raises:
      UserModelError: the model cannot be made, is not a module, or has weights of another type.
    """
    with torch.inference_mode(mode=False), torch.enable_grad():
        return _create_model(parameters)


def _create_model(parameters: Parameters) -> Any:
    brought = UserFile(parameters, torch.manual_seed)
    made = brought.make()
    made = getattr(made, "_orig_mod", made)  # unwrap torch.compile
    _register_dataclasses(brought.modules())
    if "train" in parameters and isinstance(made, torch.nn.Module):
        return TorchTrainingModel(in_type(made, "fp32"), brought, parameters)
    if not isinstance(made, torch.nn.Module) and not inputs.follows_interface(made):
        raise UserModelError(
            f"{brought.place} returned a {type(made).__name__}, not a torch.nn.Module; if it is a "
            "model with its inputs, return the inputs from example_inputs(); if it uses another "
            "framework, set FRAMEWORK in the file"
        )

    def wrapped(module: torch.nn.Module) -> TorchModel:
        model = TorchModel(in_type(module, str(parameters["data_type"])), parameters)
        model.take_example(brought)
        return model

    return inputs.with_inputs(made, parameters, wrapped)


def _register_dataclasses(modules: Iterable[ModuleType]) -> None:
    """Registers the user's dataclasses as tree nodes before tracing, because Dynamo cannot."""
    for module in modules:
        for value in vars(module).values():
            if isinstance(value, type) and dataclasses.is_dataclass(value):
                with contextlib.suppress(ValueError):  # a library has registered it
                    TorchModel.trees.register(value)


def in_type(module: torch.nn.Module, data_type: str) -> torch.nn.Module:
    """Returns a module with float32 weights rounded to a type.

    Raises:
      UserModelError: some weights have yet another type, or are on no device.
    """
    dtype = TORCH_DTYPES[data_type]
    types = {tensor.dtype for tensor in _tensors(module) if tensor.is_floating_point()}
    if any(tensor.is_meta for tensor in _tensors(module)):
        raise UserModelError("the weights are on the `meta` device and have no values")
    if other := types - {dtype, torch.float32}:
        names = {value: key for key, value in TORCH_DTYPES.items()}
        known = names.get(min(other, key=str))
        way_out = "; return it in float32 with model.float()" if torch.float64 in other else ""
        hint = f"; pass --dtype {known}" if known else way_out
        raise UserModelError(f"the weights are {min(other, key=str)}, not {data_type}{hint}")
    # `Module.to` would make complex weights real.
    casts = {"fp32": module.float, "fp16": module.half, "bf16": module.bfloat16}
    return casts[data_type]()


def _tensors(module: torch.nn.Module) -> Iterator[torch.Tensor]:
    yield from module.parameters()
    yield from module.buffers()
