"""float8wo: weights in float8 (e4m3), products in the model's own type."""

from typing import Any

from comparative_benchmark.recipes.registry import Recipe
from comparative_benchmark.recipes.rounding import Grid, Rounding

RECIPE = Recipe(
    name="float8wo",
    description="float8 (e4m3) weights, one scale per output; products in the model's own type",
    min_sqnr_db=lambda _: 20.0,
    rounding=lambda _: Rounding(weights=Grid("fp8")),
    by_backend={
        "pt_inductor": f"{__name__}:with_torchao",
        "jax_xla": f"{__name__}:with_qwix",
    },
)


def with_torchao() -> tuple[Any, str]:
    """Returns torchao's configuration, and the class of weights that it makes."""
    from torchao.quantization import Float8WeightOnlyConfig

    return Float8WeightOnlyConfig(set_inductor_config=False), "Float8Tensor"


def with_qwix() -> dict[str, Any]:
    """Returns the settings of Qwix's rule."""
    return {"weight_qtype": "float8_e4m3fn"}
