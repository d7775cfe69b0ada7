"""Operators and layers in PyTorch: forward, and backward as an exportable program."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._decomp import core_aten_decompositions, get_decompositions
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.attention import SDPBackend, sdpa_kernel

from openxla.benchmark.def_types import Parameters
from openxla.benchmark.models.pt.tensors import as_tensor, load_weights
from openxla.benchmark.models.shared_model import as_tuple
from openxla.benchmark.operators import models
from openxla.benchmark.operators.architecture import operator_of, shape_of, trains, weights_of
from openxla.benchmark.operators.definition import Layer


class OperatorModel(torch.nn.Module, models.OperatorModel):
    """A module without weights."""

    def __init__(self, parameters: Parameters) -> None:
        super().__init__()
        self.set_operator(parameters)

    def forward(self, *inputs: Any) -> Any:
        """Runs the operator."""
        return self.operator.torch(*map(as_tensor, inputs))


class LayerModel(OperatorModel):
    """A layer's own module."""

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(parameters)
        self.layer = _layer(parameters)

    def forward(self, *inputs: Any) -> Any:
        """Runs the layer."""
        return self.layer(*map(as_tensor, inputs))


class TrainingModel(torch.nn.Module, models.OperatorModel):
    """A layer or an operator as a module that runs forward and backward."""

    def __init__(self, parameters: Parameters, layer: torch.nn.Module) -> None:
        super().__init__()
        self.set_operator(parameters)
        self.layer = layer.requires_grad_(True)

    def forward(self, *inputs: Any) -> tuple[torch.Tensor, ...]:
        """Returns outputs, gradients of inputs and gradients of weights."""
        return self.training_step()(*map(as_tensor, inputs))

    def training_step(
        self, compile_part: Callable[[torch.nn.Module], Any] = lambda part: part
    ) -> Callable[..., tuple[torch.Tensor, ...]]:
        """Returns a function that runs forward and backward on tensors.

        Args:
          compile_part: compiles only the module. The gradients are taken outside of it, as in a
            training loop: a compiled module has a compiled backward as well, whereas Dynamo would
            split a function that takes gradients itself.
        """
        part = compile_part(self.layer)
        weights = [self.layer.get_parameter(name) for name in self.trained]

        def step(*inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
            given, cotangents = self.split(inputs)
            return _with_gradients(part, given, weights, cotangents)

        return step

    def exportable(self, inputs: Sequence[torch.Tensor]) -> torch.nn.Module:
        """Returns a module whose `forward` runs both passes as plain operations, without autograd.

        Exporters cannot trace through autograd, but its operations form an ordinary program.
        Operations that only occur in the backward pass, which exporters do not support, are
        decomposed.
        """
        module = self.layer

        def both(state: Any, given: Any, cotangents: Any) -> tuple[torch.Tensor, ...]:
            state = {
                name: value.detach().requires_grad_(name in self.trained)
                for name, value in state.items()
            }

            def call(*values: torch.Tensor) -> Any:
                return torch.func.functional_call(module, state, values)

            weights = [state[name] for name in self.trained]
            return _with_gradients(call, given, weights, cotangents)

        traced = make_fx(both, _simple(), tracing_mode="fake", _allow_non_fake_inputs=True)
        # Attention as products and a softmax: exporters do not support the kernels' own backward.
        with sdpa_kernel(SDPBackend.MATH):
            return _Traced(self, traced(_state(module), *self.split(inputs)))


class _Function(torch.nn.Module):
    """An operator as a layer without weights."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self._function = function

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self._function(*inputs)


class _Traced(torch.nn.Module):
    """A traced training step, on the weights of its model."""

    def __init__(self, model: TrainingModel, graph: torch.nn.Module) -> None:
        super().__init__()
        self.layer, self._graph, self._split = model.layer, graph, model.split

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self._graph(_state(self.layer), *self._split(inputs))


def _layer(parameters: Parameters) -> torch.nn.Module:
    with torch.device("meta"):
        layer: torch.nn.Module = operator_of(parameters).torch(*shape_of(parameters))
    load_weights(layer, weights_of(parameters), str(parameters["data_type"]))
    return layer.eval().requires_grad_(False)


def _build(parameters: Parameters) -> models.OperatorModel:
    is_layer = isinstance(operator_of(parameters), Layer)
    if not trains(parameters):
        return (LayerModel if is_layer else OperatorModel)(parameters)
    layer = _layer(parameters) if is_layer else _Function(operator_of(parameters).torch)
    return TrainingModel(parameters, layer)


def _simple() -> dict[Any, Callable[..., Any]]:
    """Returns PyTorch's decompositions of operations that only occur in the backward pass."""
    every = core_aten_decompositions()
    backward = {op: how for op, how in every.items() if "backward" in str(op)}
    # Exporters do not support the extra outputs that it saves for the backward either.
    return {**get_decompositions([torch.ops.aten.native_layer_norm]), **backward}


def _state(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def _with_gradients(
    call: Callable[..., Any],
    inputs: Sequence[torch.Tensor],
    weights: Sequence[torch.Tensor],
    cotangents: Sequence[torch.Tensor],
) -> tuple[torch.Tensor, ...]:
    # Backends disable gradients elsewhere.
    with torch.enable_grad():
        leaves = [
            value.detach().requires_grad_() if value.is_floating_point() else value
            for value in inputs
        ]
        outputs = as_tuple(call(*leaves))
        targets = [value for value in outputs if value.is_floating_point()]
        sources = [value for value in leaves if value.is_floating_point()]
        gradients = torch.autograd.grad(targets, [*sources, *weights], cotangents)
    return (*(value.detach() for value in outputs), *gradients)


create_model = models.creator(_build)
