"""int8_dynamic_activation_intx_weight-<bits>-<group>: few bits of weights, 8 of activations."""

from typing import Any

from comparative_benchmark.recipes.intx import integers, least_db
from comparative_benchmark.recipes.registry import Parameter, Recipe
from comparative_benchmark.recipes.rounding import Grid, Rounding

RECIPE = Recipe(
    name="int8_dynamic_activation_intx_weight",
    description="<bits>-bit weights, one scale per group; dynamic int8 activations",
    parameters=(Parameter(name="bits", choices=tuple(range(1, 9))), Parameter(name="group")),
    min_sqnr_db=lambda values: min(least_db(values), 25.0),
    rounding=lambda values: Rounding(weights=integers(values), activations=Grid("int8")),
    by_backend={"pt_inductor": f"{__name__}:with_torchao"},
)


def with_torchao(bits: int, group: int) -> tuple[Any, str]:
    """Returns torchao's configuration, and the class of weights that it makes."""
    import torch
    from torchao.quantization import Int8DynamicActivationIntxWeightConfig, PerGroup

    config = Int8DynamicActivationIntxWeightConfig(
        weight_dtype=getattr(torch, f"int{bits}"), weight_granularity=PerGroup(group)
    )
    return config, "IntxUnpackedToInt8Tensor"
