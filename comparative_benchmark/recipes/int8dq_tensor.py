"""int8dq-tensor: weights in 8 bits, and activations as they come, with one scale for a tensor."""

import functools
from collections.abc import Callable

from comparative_benchmark.recipes.registry import Recipe
from comparative_benchmark.recipes.rounding import Grid, Rounding

RECIPE = Recipe(
    name="int8dq-tensor",
    description="int8 weights, one scale per output; dynamic 8-bit activations, one scale per "
    "tensor; integer products",
    min_sqnr_db=lambda _: 20.0,
    rounding=lambda _: Rounding(weights=Grid("int8"), activations=Grid("int8", "tensor")),
    by_backend={"onnxruntime": f"{__name__}:with_onnxruntime"},
    products="int8",
)


def with_onnxruntime() -> tuple[Callable[[str, str], object], str]:
    """Returns what quantises a file into another, and the operator that it makes of products."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    quantise = functools.partial(
        quantize_dynamic,
        per_channel=True,
        weight_type=QuantType.QInt8,
        op_types_to_quantize=["MatMul", "Gemm"],
        use_external_data_format=True,
    )
    return quantise, "MatMulInteger"
