"""float8dq-row: weights and activations in float8, a scale for each row."""

from typing import Any

from comparative_benchmark.recipes.registry import Recipe
from comparative_benchmark.recipes.rounding import Grid, Rounding

RECIPE = Recipe(
    name="float8dq-row",
    description="float8 (e4m3) weights and dynamic float8 activations, one scale per row",
    min_sqnr_db=lambda _: 18.0,
    rounding=lambda _: Rounding(weights=Grid("fp8"), activations=Grid("fp8")),
    by_backend={
        "pt_inductor": f"{__name__}:with_torchao",
        "jax_xla": f"{__name__}:with_qwix",
    },
    products="fp8",
)


def with_torchao() -> tuple[Any, str]:
    """Returns torchao's configuration, and the class of weights that it makes."""
    from torchao.quantization import Float8DynamicActivationFloat8WeightConfig, PerRow

    config = Float8DynamicActivationFloat8WeightConfig(
        granularity=PerRow(), set_inductor_config=False
    )
    return config, "Float8Tensor"


def with_qwix() -> dict[str, Any]:
    """Returns the settings of Qwix's rule."""
    return {"weight_qtype": "float8_e4m3fn", "act_qtype": "float8_e4m3fn"}
