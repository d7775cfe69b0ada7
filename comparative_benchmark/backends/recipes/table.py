"""The built-in recipes.

The functions `torchao`, `qwix`, `nncf` and `library` bind a function of `libraries` to settings.
Workers call it. This module imports no framework, because the parent process imports the table.
"""

import functools
import pkgutil
from collections.abc import Callable, Mapping
from typing import Any

import attrs

from comparative_benchmark.backends.recipes.definition import Parameter, Recipe
from comparative_benchmark.backends.recipes.rounding import Grid, Rounding

_Values = Mapping[str, int]
_BITS = Parameter(name="bits", choices=tuple(range(1, 9)))
_GROUP = Parameter(name="group")
_BOTH_INT8 = Rounding(weights=Grid("int8"), activations=Grid("int8"))
_BOTH_FP8 = Rounding(weights=Grid("fp8"), activations=Grid("fp8"))
_BOTH_FP8_TENSOR = Rounding(weights=Grid("fp8", "tensor"), activations=Grid("fp8", "tensor"))
_MXFP8 = Grid("fp8", 32, "power of two")


def library(function: str, *arguments: Any, **settings: Any) -> Callable[..., Any]:
    """Returns a function of a recipe's parameters that imports and calls one of `libraries`."""
    path = f"comparative_benchmark.backends.recipes.libraries:{function}"
    return lambda **values: pkgutil.resolve_name(path)(*arguments, **settings, **values)


torchao = functools.partial(library, "torchao")
qwix = functools.partial(library, "qwix")
nncf = functools.partial(library, "nncf")


def _min_db(values: _Values) -> float:
    """Returns 6 dB per bit, less the noise that layers add; with one bit little signal remains."""
    return max(6.0 * values["bits"] - 12.0, 3.0)


def _integers(values: _Values) -> Grid | None:
    """Returns the grid of the weights; None for one bit, which libraries round differently."""
    return Grid(f"int{values['bits']}", values["group"]) if values["bits"] > 1 else None


_SEMI_SPARSE = Recipe(
    name="semi-sparse",
    description="the two smallest of every four weights in a row are set to 0 and skipped (2:4)",
    min_sqnr_db=5.0,
    rounding=Rounding(weights=Grid("2:4")),
    by_backend={"pt_inductor": library("torchao_semi_sparse")},
)

RECIPES = (
    # Integers.
    Recipe(
        name="int8wo",
        description="int8 weights, one scale per output; products in the model's own type",
        min_sqnr_db=30.0,
        rounding=Rounding(weights=Grid("int8")),
        by_nncf_in=("openvino",),
        by_backend={
            "pt_inductor": torchao("Int8WeightOnlyConfig", "Int8Tensor", set_inductor_config=False),
            "jax_xla": qwix(weight_qtype="int8"),
            "openvino": nncf("INT8_SYM", "i8"),
        },
    ),
    Recipe(
        name="int8dq",
        description="int8 weights and dynamic int8 activations, one scale per row of both",
        min_sqnr_db=25.0,
        rounding=_BOTH_INT8,
        by_backend={
            "pt_inductor": torchao(
                "Int8DynamicActivationInt8WeightConfig", "Int8Tensor", set_inductor_config=False
            ),
            "jax_xla": qwix(weight_qtype="int8", act_qtype="int8"),
        },
        products="int8",
    ),
    Recipe(
        name="int8dq-tensor",
        description="int8 weights, one scale per output; dynamic 8-bit activations, one scale per "
        "tensor; integer products",
        min_sqnr_db=20.0,
        rounding=Rounding(weights=Grid("int8"), activations=Grid("int8", "tensor")),
        by_backend={"onnxruntime": library("onnxruntime_int8")},
        products="int8",
    ),
    Recipe(
        name="intx",
        description="<bits>-bit weights, one scale per group of inputs; products unchanged",
        parameters=(_BITS, _GROUP),
        min_sqnr_db=_min_db,
        rounding=lambda values: Rounding(weights=_integers(values)),
        by_nncf_in=("openvino",),
        by_backend={
            "pt_inductor": library("torchao_intx", "IntxWeightOnlyConfig", "granularity"),
            "onnxruntime": library("onnxruntime_intx"),
            "jax_xla": library("qwix_intx"),
            "openvino": library("nncf_intx"),
        },
    ),
    Recipe(
        name="int4wo",
        description="packed 4-bit weights, one scale per group of inputs; products unchanged",
        parameters=(Parameter(name="group", choices=(32, 64, 128, 256)),),
        min_sqnr_db=10.0,
        rounding=lambda values: Rounding(weights=Grid("int4", values["group"])),
        by_nncf_in=("openvino",),
        by_backend={
            "pt_inductor": library("torchao_int4"),
            "onnxruntime": library("onnxruntime_intx", bits=4),
            "jax_xla": library("qwix_intx", bits=4),
            "openvino": library("nncf_intx", bits=4),
        },
    ),
    Recipe(
        name="int8_dynamic_activation_intx_weight",
        description="<bits>-bit weights, one scale per group; dynamic int8 activations",
        parameters=(_BITS, _GROUP),
        min_sqnr_db=lambda values: min(_min_db(values), 25.0),
        rounding=lambda values: Rounding(weights=_integers(values), activations=Grid("int8")),
        by_backend={
            "pt_inductor": library(
                "torchao_intx", "Int8DynamicActivationIntxWeightConfig", "weight_granularity"
            )
        },
    ),
    Recipe(
        name="gemlitewo",
        description="4-bit or 8-bit weights with gemlite's Triton kernels",
        parameters=(Parameter(name="bits", choices=(4, 8)), _GROUP),
        min_sqnr_db=_min_db,
        lacking={
            "pt_inductor": "torchao 0.18 no longer has gemlite; use intx-<bits>-<group> instead"
        },
    ),
    # Floating-point numbers.
    Recipe(
        name="float8wo",
        description="float8 (e4m3) weights, one scale per output; products in the model's own type",
        min_sqnr_db=20.0,
        rounding=Rounding(weights=Grid("fp8")),
        by_backend={
            "pt_inductor": torchao(
                "Float8WeightOnlyConfig", "Float8Tensor", set_inductor_config=False
            ),
            "jax_xla": qwix(weight_qtype="float8_e4m3fn"),
        },
    ),
    Recipe(
        name="float8dq-row",
        description="float8 (e4m3) weights and dynamic float8 activations, one scale per row",
        min_sqnr_db=18.0,
        rounding=_BOTH_FP8,
        by_backend={
            "pt_inductor": library("torchao_float8", "PerRow"),
            "jax_xla": qwix(weight_qtype="float8_e4m3fn", act_qtype="float8_e4m3fn"),
        },
        products="fp8",
    ),
    Recipe(
        name="float8dq-tensor",
        description="float8 (e4m3) weights and dynamic float8 activations, one scale per tensor",
        min_sqnr_db=15.0,
        rounding=_BOTH_FP8_TENSOR,
        by_backend={"pt_inductor": library("torchao_float8", "PerTensor")},
        products="fp8",
    ),
    Recipe(
        name="mxfp8",
        description="float8 (e4m3) weights and activations, a power-of-two scale per 32 "
        "(OCP MX 1.0)",
        min_sqnr_db=16.0,
        rounding=Rounding(weights=_MXFP8, activations=_MXFP8),
        by_backend={
            "pt_inductor": library("torchao_mxfp8"),
            "jax_xla": qwix(weight_qtype="mxfp8", act_qtype="mxfp8", tile_size=32),
        },
    ),
    Recipe(
        name="nvfp4",
        description="float4 (e2m1) weights, a float8 scale per 16 weights; products unchanged",
        min_sqnr_db=8.0,
        rounding=Rounding(weights=Grid("fp4", 16, "fp8")),
        by_backend={
            "pt_inductor": torchao("prototype.mx_formats:NVFP4WeightOnlyConfig", "NVFP4Tensor"),
            "jax_xla": qwix(weight_qtype="nvfp4", tile_size=16),
        },
    ),
    # Fewer weights.
    _SEMI_SPARSE,
    attrs.evolve(_SEMI_SPARSE, name="2:4", description="another name for semi-sparse"),
    Recipe(
        name="block",
        description="weights in square blocks of the given size; all-zero blocks are skipped",
        parameters=(Parameter(name="size"),),
        min_sqnr_db=5.0,
        by_backend={"pt_inductor": library("torchao_block_sparse")},
    ),
    # Training.
    Recipe(
        name="int8_weight_only_quantized_training",
        description="int8 weights, one scale per output, also during training; products in the "
        "model's own type",
        min_sqnr_db=28.0,
        rounding=Rounding(weights=Grid("int8")),
        by_backend={
            "pt_inductor": torchao(
                "prototype.quantized_training:int8_weight_only_quantized_training",
                "Int8QuantizedTrainingLinearWeight",
            ),
        },
        trains=("pt_inductor",),
    ),
    Recipe(
        name="int8_mixed_precision_training",
        description="weights in their own type; factors of forward and backward products converted "
        "to int8, one scale per row of both",
        min_sqnr_db=20.0,
        rounding=_BOTH_INT8,
        by_backend={
            # Without `module_swap`, torchao 0.18 computes nothing in int8: the outputs equal those
            # of the model without the recipe.
            "pt_inductor": torchao(
                "prototype.quantized_training:Int8MixedPrecisionTrainingConfig",
                "Int8MixedPrecisionTrainingLinear",
                module_swap=True,
            ),
        },
        trains=("pt_inductor",),
        products="int8",
    ),
    Recipe(
        name="float8_tensorwise_training",
        description="weights in their own type; factors of products converted to float8 (e4m3; "
        "e5m2 for gradients), one scale per tensor",
        min_sqnr_db=14.0,
        rounding=_BOTH_FP8_TENSOR,
        by_backend={"pt_inductor": library("torchao_float8_training")},
        trains=("pt_inductor",),
        products="fp8",
    ),
)
