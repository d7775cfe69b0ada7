"""nvfp4: weights in 4-bit floats (e2m1), a float8 scale for each 16 of them."""

from typing import Any

from comparative_benchmark.recipes.registry import Recipe
from comparative_benchmark.recipes.rounding import Grid, Rounding

RECIPE = Recipe(
    name="nvfp4",
    description="float4 (e2m1) weights, a float8 scale per 16 weights; products unchanged",
    min_sqnr_db=lambda _: 8.0,
    rounding=lambda _: Rounding(weights=Grid("fp4", 16, "fp8")),
    by_backend={
        "pt_inductor": f"{__name__}:with_torchao",
        "jax_xla": f"{__name__}:with_qwix",
    },
)


def with_torchao() -> tuple[Any, str]:
    """Returns torchao's configuration, and the class of weights that it makes."""
    from torchao.prototype.mx_formats import NVFP4WeightOnlyConfig

    return NVFP4WeightOnlyConfig(), "NVFP4Tensor"


def with_qwix() -> dict[str, Any]:
    """Returns the settings of Qwix's rule."""
    return {"weight_qtype": "nvfp4", "tile_size": 16}
