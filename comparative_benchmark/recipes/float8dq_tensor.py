"""float8dq-tensor: weights and activations in float8, one scale for each tensor."""

from typing import Any

from comparative_benchmark.recipes.registry import Recipe
from comparative_benchmark.recipes.rounding import Grid, Rounding

RECIPE = Recipe(
    name="float8dq-tensor",
    description="float8 (e4m3) weights and dynamic float8 activations, one scale per tensor",
    min_sqnr_db=lambda _: 15.0,
    rounding=lambda _: Rounding(weights=Grid("fp8", "tensor"), activations=Grid("fp8", "tensor")),
    by_backend={"pt_inductor": f"{__name__}:with_torchao"},
    products="fp8",
)


def with_torchao() -> tuple[Any, str]:
    """Returns torchao's configuration, and the class of weights that it makes."""
    from torchao.quantization import Float8DynamicActivationFloat8WeightConfig, PerTensor

    config = Float8DynamicActivationFloat8WeightConfig(
        granularity=PerTensor(), set_inductor_config=False
    )
    return config, "Float8Tensor"
