"""Operators and layers in PyTorch."""

from typing import Any

import torch

from openxla.benchmark.def_types import Parameters
from openxla.benchmark.models.pt.tensors import as_tensor, load_weights
from openxla.benchmark.operators import models
from openxla.benchmark.operators.architecture import operator_of, shape_of
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
        with torch.device("meta"):
            self.layer = self.operator.torch(*shape_of(parameters))
        load_weights(self.layer, self.weights(), str(parameters["data_type"]))
        self.eval().requires_grad_(False)

    def forward(self, *inputs: Any) -> Any:
        """Runs the layer."""
        return self.layer(*map(as_tensor, inputs))


def _build(parameters: Parameters) -> OperatorModel:
    is_layer = isinstance(operator_of(parameters), Layer)
    return (LayerModel if is_layer else OperatorModel)(parameters)


create_model = models.creator(_build)
