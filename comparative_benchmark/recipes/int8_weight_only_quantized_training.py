"""int8_weight_only_quantized_training: a model that is trained holds its weights in 8 bits."""

from typing import Any

from comparative_benchmark.recipes.registry import Recipe
from comparative_benchmark.recipes.rounding import Grid, Rounding

RECIPE = Recipe(
    name="int8_weight_only_quantized_training",
    description="int8 weights, one scale per output, also during training; products in the model's "
    "own type",
    min_sqnr_db=lambda _: 28.0,
    rounding=lambda _: Rounding(weights=Grid("int8")),
    by_backend={"pt_inductor": f"{__name__}:with_torchao"},
    trains=("pt_inductor",),
)


def with_torchao() -> tuple[Any, str]:
    """Returns torchao's configuration, and the class of weights that it makes."""
    from torchao.prototype.quantized_training import int8_weight_only_quantized_training

    return int8_weight_only_quantized_training(), "Int8QuantizedTrainingLinearWeight"
