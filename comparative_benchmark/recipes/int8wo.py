"""int8wo: weights in 8 bits, a scale for each row; products in the model's own type."""

from typing import Any

from comparative_benchmark.recipes.registry import Recipe

RECIPE = Recipe(
    name="int8wo",
    description="weights in int8, a scale for each output; products in the model's own type",
    min_sqnr_db=lambda _: 30.0,
    by_backend={"pt_inductor": f"{__name__}:with_torchao"},
)


def with_torchao() -> tuple[Any, str]:
    """Returns torchao's configuration, and the class of weights that it makes."""
    from torchao.quantization import Int8WeightOnlyConfig

    return Int8WeightOnlyConfig(set_inductor_config=False), "Int8Tensor"
