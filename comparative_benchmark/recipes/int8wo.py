"""int8wo: weights in 8 bits, a scale for each row; products in the model's own type."""

from typing import Any

from comparative_benchmark.recipes.registry import Recipe
from comparative_benchmark.recipes.rounding import Grid, Rounding

RECIPE = Recipe(
    name="int8wo",
    description="int8 weights, one scale per output; products in the model's own type",
    min_sqnr_db=lambda _: 30.0,
    rounding=lambda _: Rounding(weights=Grid("int8")),
    by_nncf_in=("openvino",),
    by_backend={
        "pt_inductor": f"{__name__}:with_torchao",
        "jax_xla": f"{__name__}:with_qwix",
        "openvino": f"{__name__}:with_nncf",
    },
)


def with_torchao() -> tuple[Any, str]:
    """Returns torchao's configuration, and the class of weights that it makes."""
    from torchao.quantization import Int8WeightOnlyConfig

    return Int8WeightOnlyConfig(set_inductor_config=False), "Int8Tensor"


def with_qwix() -> dict[str, Any]:
    """Returns the settings of Qwix's rule."""
    return {"weight_qtype": "int8"}


def with_nncf() -> tuple[dict[str, Any], str, dict[str, Any]]:
    """Returns NNCF's settings, the type of weights that they make, and the plug-in's properties."""
    from nncf import CompressWeightsMode

    # Otherwise the plug-in quantises activations as well, where the CPU has instructions for that.
    return {"mode": CompressWeightsMode.INT8_SYM}, "i8", {"DYNAMIC_QUANTIZATION_GROUP_SIZE": 0}
