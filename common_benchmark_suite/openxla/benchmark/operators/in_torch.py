"""Operators and layers in PyTorch."""

from typing import Any

import torch

from openxla.benchmark.def_types import Parameters
from openxla.benchmark.models.pt.tensors import as_tensor, load_weights
from openxla.benchmark.operators import models
from openxla.benchmark.operators.architecture import operator_of, shape_of, trains, weights_of
from openxla.benchmark.operators.backward_torch import TrainingModel
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


class _Function(torch.nn.Module):
    """An operator as a layer without weights."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self._function = function

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self._function(*inputs)


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


create_model = models.creator(_build)
