"""mxfp8: weights and activations in float8 with a power of two for each 32 of them (OCP MX 1.0)."""

from typing import Any

from comparative_benchmark.recipes.registry import Recipe
from comparative_benchmark.recipes.rounding import Grid, Rounding

RECIPE = Recipe(
    name="mxfp8",
    description="float8 (e4m3) weights and activations, a power-of-two scale per 32 (OCP MX 1.0)",
    min_sqnr_db=lambda _: 16.0,
    rounding=lambda _: Rounding(
        weights=Grid("fp8", 32, "power of two"), activations=Grid("fp8", 32, "power of two")
    ),
    by_backend={
        "pt_inductor": f"{__name__}:with_torchao",
        "jax_xla": f"{__name__}:with_qwix",
    },
)


def with_torchao() -> tuple[Any, str]:
    """Returns torchao's configuration, and the class of weights that it makes.

    Where no unit computes in this type, the rounding is real and the product is in bf16.
    """
    import torch
    from torchao.prototype.mx_formats import MXDynamicActivationMXWeightConfig
    from torchao.quantization.quantize_.common import KernelPreference

    able = torch.cuda.is_available() and torch.cuda.get_device_capability() >= (10, 0)
    kernel = KernelPreference.AUTO if able else KernelPreference.EMULATED
    return MXDynamicActivationMXWeightConfig(kernel_preference=kernel), "MXTensor"


def with_qwix() -> dict[str, Any]:
    """Returns the settings of Qwix's rule."""
    return {"weight_qtype": "mxfp8", "act_qtype": "mxfp8", "tile_size": 32}
