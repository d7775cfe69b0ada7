"""The two functions of torchao's benchmarking guide that its users call and extend.

Add your branches at the comments. Then you can use their names in the YAML and in
`cbs run --backend pt_inductor:inductor+NAME`. Workers import this file, so define your models here.
"""

from typing import Any

import torch

from comparative_benchmark.backends import recipes
from comparative_benchmark.studies.micro.config import BASELINE, data_type_of
from openxla.benchmark import operators
from openxla.benchmark.operators.definition import Layer


def string_to_config(quantization: str | None, sparsity: str | None, **kwargs: Any) -> Any:
    """Returns torchao's configuration for the name of a recipe; None for the baseline.

    Args:
      quantization: recipe, e.g. `int8wo` or `intx-4-64`; None or `baseline` to omit it.
      sparsity: recipe, e.g. `semi-sparse`; None to omit it.
      **kwargs: parameters that override the recipe's, e.g. `group=32`.

    Raises:
      RecipeError: unknown recipe, or two recipes that cannot be combined.
      ImportError: torchao is not installed.
    """
    named = [name for name in (quantization, sparsity) if name and name != BASELINE]
    if not named:
        return None
    # Your recipes: `elif quantization == "my_new_quantization": return MyNewQuantizationConfig()`
    for name in named:
        recipes.parse(name)  # an unknown name is an error
    chosen = recipes.chosen_among(named)
    assert chosen is not None
    config, _ = chosen.configuration_in("pt_inductor", **kwargs)
    return config


def create_model_and_input_data(
    model_type: str,
    m: int,
    k: int,
    n: int,
    high_precision_dtype: Any = torch.bfloat16,
    device: str = "cuda",
    activation: str = "relu",
) -> tuple[Any, Any]:
    """Returns a layer with seeded weights, and its input, on a device.

    Args:
      model_type: a layer of `cbs micro list`, or `ln_linear`, which uses `activation`.
      m: rows of the input, or number of texts of a transformer block.
      k: width of the input.
      n: width of the output.
      high_precision_dtype: type of weights and input, from torch or as in the YAML.
      device: name of the device in torch.
      activation: activation of `ln_linear`.

    Raises:
      DefinitionError: unknown layer, or a shape that it does not support.
    """
    name = f"ln_linear_{activation}" if model_type == "ln_linear" else model_type
    if name in operators.operators():
        model, input_data = _layer(name, (m, k, n), str(high_precision_dtype), device)
    # Your models: `elif model_type == "my_custom_model":`, which sets `model` and `input_data`.
    else:
        raise operators.unknown(name)
    return model, input_data


def _layer(
    name: str, shape: tuple[int, int, int], data_type: str, device: str
) -> tuple[Any, torch.Tensor]:
    operator = operators.get(name)
    if not isinstance(operator, Layer):
        raise TypeError(f"{name} has no weights, so no recipe applies to it")
    from openxla.benchmark.models.pt.tensors import as_tensor
    from openxla.benchmark.operators.in_torch import create_model

    sizes = dict(zip("mkn", operator.shape(*shape), strict=True))
    model = create_model(model_name=name, data_type=data_type_of(data_type), **sizes)
    (inputs,) = model.preprocess(model.generate_default_inputs())
    return model.layer.to(device), as_tensor(inputs).to(device)
