"""float8_tensorwise_training: all products of training in float8, of weights in their own type."""

from collections.abc import Callable
from typing import Any

from comparative_benchmark.recipes.registry import Recipe
from comparative_benchmark.recipes.rounding import Grid, Rounding

RECIPE = Recipe(
    name="float8_tensorwise_training",
    description="weights in their own type; factors of products converted to float8 (e4m3; e5m2 "
    "for gradients), one scale per tensor",
    min_sqnr_db=lambda _: 14.0,
    rounding=lambda _: Rounding(weights=Grid("fp8", "tensor"), activations=Grid("fp8", "tensor")),
    by_backend={"pt_inductor": f"{__name__}:with_torchao"},
    trains=("pt_inductor",),
    products="fp8",
)


def with_torchao() -> tuple[Callable[[Any], object], str]:
    """Returns what converts a module, and the class of layers that it makes."""
    from torchao.float8 import convert_to_float8_training

    return convert_to_float8_training, "Float8Linear"
