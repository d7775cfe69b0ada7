"""int8dq: weights and activations in 8 bits, products in integers."""

from typing import Any

from comparative_benchmark.recipes.registry import Recipe
from comparative_benchmark.recipes.rounding import Grid, Rounding

RECIPE = Recipe(
    name="int8dq",
    description="int8 weights and dynamic int8 activations, one scale per row of both",
    min_sqnr_db=lambda _: 25.0,
    rounding=lambda _: Rounding(weights=Grid("int8"), activations=Grid("int8")),
    by_backend={
        "pt_inductor": f"{__name__}:with_torchao",
        "jax_xla": f"{__name__}:with_qwix",
    },
    products="int8",
)


def with_torchao() -> tuple[Any, str]:
    """Returns torchao's configuration, and the class of weights that it makes."""
    from torchao.quantization import Int8DynamicActivationInt8WeightConfig

    return Int8DynamicActivationInt8WeightConfig(set_inductor_config=False), "Int8Tensor"


def with_qwix() -> dict[str, Any]:
    """Returns the settings of Qwix's rule."""
    return {"weight_qtype": "int8", "act_qtype": "int8"}
