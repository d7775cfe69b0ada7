"""int8_mixed_precision_training: all products of training in int8, of weights in their own type."""

from typing import Any

from comparative_benchmark.recipes.registry import Recipe
from comparative_benchmark.recipes.rounding import Grid, Rounding

RECIPE = Recipe(
    name="int8_mixed_precision_training",
    description="weights in their own type; factors of forward and backward products converted to "
    "int8, one scale per row of both",
    min_sqnr_db=lambda _: 20.0,
    rounding=lambda _: Rounding(weights=Grid("int8"), activations=Grid("int8")),
    by_backend={"pt_inductor": f"{__name__}:with_torchao"},
    trains=("pt_inductor",),
    products="int8",
)


def with_torchao() -> tuple[Any, str]:
    """Returns torchao's configuration, and the class of layers that it makes.

    Its other way, a class of weights, computes nothing in int8 as of torchao 0.18: the outputs are
    those of the model without it, to the last bit.
    """
    from torchao.prototype.quantized_training import Int8MixedPrecisionTrainingConfig

    return Int8MixedPrecisionTrainingConfig(module_swap=True), "Int8MixedPrecisionTrainingLinear"
