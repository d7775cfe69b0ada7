"""Available recipes: built-in ones, plug-ins, and recipes from torchao's guide.

The functions `torchao`, `qwix`, `nncf` and `library` bind settings to a function in `libraries`,
which workers call. This module imports no framework, because the parent process imports it. Users
of the guide define recipes in `string_to_config()`.
"""

import functools
import pkgutil
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import attrs

from comparative_benchmark.backends.recipes.definition import (
    Chosen,
    Grid,
    Parameter,
    Recipe,
    RecipeError,
    Rounding,
)
from openxla.benchmark.operators import guide_functions
from openxla.benchmark.plugins import plugins
from openxla.benchmark.text import choices

_Values = Mapping[str, int]
_BITS = Parameter(name="bits", choices=tuple(range(1, 9)))
_GROUP = Parameter(name="group")
_BOTH_INT8 = Rounding(weights=Grid("int8"), activations=Grid("int8"))
_BOTH_FP8 = Rounding(weights=Grid("fp8"), activations=Grid("fp8"))
_BOTH_FP8_TENSOR = Rounding(weights=Grid("fp8", "tensor"), activations=Grid("fp8", "tensor"))
_MXFP8 = Grid("fp8", 32, "power of two")


def library(function: str, *arguments: Any, **settings: Any) -> Callable[..., Any]:
    """Returns a function that takes a recipe's parameters, and calls a function in `libraries`."""
    path = f"comparative_benchmark.backends.recipes.libraries:{function}"
    return lambda **values: pkgutil.resolve_name(path)(*arguments, **settings, **values)


torchao = functools.partial(library, "torchao")
qwix = functools.partial(library, "qwix")
nncf = functools.partial(library, "nncf")


def _min_db(values: _Values) -> float:
    """Returns 6 dB per bit, minus the noise that layers add; one bit leaves little signal."""
    return max(6.0 * values["bits"] - 12.0, 3.0)


def _integers(values: _Values) -> Grid | None:
    """Returns the grid for the weights; None for one bit, which libraries round differently."""
    return Grid(f"int{values['bits']}", values["group"]) if values["bits"] > 1 else None


_SEMI_SPARSE = Recipe(
    name="semi-sparse",
    description="the two smallest of every four adjacent weights are set to 0 and skipped (2:4)",
    min_sqnr_db=5.0,
    rounding=Rounding(weights=Grid("2:4")),
    by_backend={"pt_inductor": library("torchao_semi_sparse")},
)

RECIPES = (
    # Integers.
    Recipe(
        name="int8wo",
        description="int8 weights only, one scale per output",
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
        description="int8 weights and dynamic int8 activations, one scale per row",
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
        description="<bits>-bit weights only, one scale per <group> inputs",
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
        description="packed 4-bit weights only, one scale per <group> inputs",
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
        description="<bits>-bit weights, one scale per <group> inputs; dynamic int8 activations",
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
        description="4-bit or 8-bit weights only, with gemlite's Triton kernels",
        parameters=(Parameter(name="bits", choices=(4, 8)), _GROUP),
        min_sqnr_db=_min_db,
        lacking={
            "pt_inductor": "torchao 0.18 no longer has gemlite; use intx-<bits>-<group> instead"
        },
    ),
    # Floating-point numbers.
    Recipe(
        name="float8wo",
        description="float8 (e4m3) weights only, one scale per output",
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
        description="float8 (e4m3) weights and activations, one power-of-two scale per 32 numbers "
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
        description="float4 (e2m1) weights only, one float8 scale per 16 weights",
        min_sqnr_db=8.0,
        rounding=Rounding(weights=Grid("fp4", 16, "fp8")),
        by_backend={
            "pt_inductor": torchao("prototype.mx_formats:NVFP4WeightOnlyConfig", "NVFP4Tensor"),
            "jax_xla": qwix(weight_qtype="nvfp4", tile_size=16),
        },
    ),
    # Fewer weights.
    _SEMI_SPARSE,
    attrs.evolve(_SEMI_SPARSE, name="2:4", description="alias for semi-sparse"),
    Recipe(
        name="block",
        description="weights in <size> x <size> blocks; all-zero blocks are skipped",
        parameters=(Parameter(name="size"),),
        min_sqnr_db=5.0,
        by_backend={"pt_inductor": library("torchao_block_sparse")},
    ),
    # Training.
    Recipe(
        name="int8_weight_only_quantized_training",
        description="int8 weights only, one scale per output, also during training",
        min_sqnr_db=28.0,
        rounding=Rounding(weights=Grid("int8")),
        by_backend={
            "pt_inductor": torchao(
                "prototype.quantized_training:int8_weight_only_quantized_training",
                "Int8QuantizedTrainingLinearWeight",
            )
        },
        trains=("pt_inductor",),
    ),
    Recipe(
        name="int8_mixed_precision_training",
        description="weights in the model's own type; operands of forward and backward products "
        "converted to int8, one scale per row",
        min_sqnr_db=20.0,
        rounding=_BOTH_INT8,
        by_backend={
            # Without `module_swap`, torchao 0.18 computes nothing in int8: the outputs are the same
            # as without the recipe.
            "pt_inductor": torchao(
                "prototype.quantized_training:Int8MixedPrecisionTrainingConfig",
                "Int8MixedPrecisionTrainingLinear",
                module_swap=True,
            )
        },
        trains=("pt_inductor",),
        products="int8",
    ),
    Recipe(
        name="float8_tensorwise_training",
        description="weights in the model's own type; operands of products converted to float8 "
        "(e4m3; e5m2 for gradients), one scale per tensor",
        min_sqnr_db=14.0,
        rounding=_BOTH_FP8_TENSOR,
        by_backend={"pt_inductor": library("torchao_float8_training")},
        trains=("pt_inductor",),
        products="fp8",
    ),
)


GROUP = "comparative_benchmark.recipes"
# The backend that applies recipes from torchao's guide.
GUIDE_BACKEND = "pt_inductor"
# The guide defines no minimum. Below this ratio, no signal remains.
_GUIDE_MIN_SQNR_DB = 5.0
# By name; these recipes have no parameters.
_from_guide: dict[str, Recipe] = {}


@functools.cache
def recipes() -> Mapping[str, Recipe]:
    """Returns all recipes by name, except the ones from torchao's guide."""
    # Older installations still register the built-in recipes, in modules that no longer exist.
    table = {
        plugin.name: plugin.value for plugin in reversed(plugins(GROUP, Recipe, built_in=False))
    }
    # A plug-in cannot replace a built-in recipe.
    table.update((recipe.name, recipe) for recipe in RECIPES)
    return {name: table[name] for name in sorted(table)}


def accept_from_guide(name: str) -> guide_functions.Refusal | None:
    """Accepts a name if `string_to_config()` in torchao's guide makes a configuration for it.

    A child process imports the function, because this process imports no framework.

    Returns:
      The reason if the name is refused; None if it is now the name of a recipe.
    """
    if refusal := guide_functions.why_no_recipe(name):
        return refusal
    _accept(name)
    return None


def accept_options(options: Collection[str], known: Collection[str]) -> None:
    """Accepts, in a worker, the names that the parent process has accepted.

    Args:
      options: compiler options.
      known: options that the compiler itself defines.
    """
    for option in options:
        if option not in known and not is_one(option):
            _accept(option)


def _accept(name: str) -> None:
    _from_guide[name] = Recipe(
        name=name,
        description=f"from string_to_config() in {guide_functions.FILE}",
        min_sqnr_db=_GUIDE_MIN_SQNR_DB,
        by_backend={GUIDE_BACKEND: _guide_configuration},
    )


def _guide_configuration(label: str) -> tuple[Any, None]:
    """Returns torchao's configuration, and None for the unknown class of its weights."""
    # The function passes unknown names to `parse`, which must not call the function again.
    accepted = dict(_from_guide)
    _from_guide.clear()
    try:
        config = guide_functions.config_of(label)
    finally:
        _from_guide.update(accepted)
    if config is None:
        raise NotImplementedError(f"string_to_config() returned None for {label!r}")
    return config, None


def parse(text: str) -> Chosen:
    """Returns the recipe and its parameters for a name such as `intx-4-64`.

    Raises:
      RecipeError: the recipe does not exist, or its parameters are invalid.
    """
    if text in _from_guide:
        return Chosen(label=text, recipe=_from_guide[text], values={"label": text})
    name = text
    given: list[str] = []
    while name not in recipes():
        name, dash, last = name.rpartition("-")
        if not dash:
            raise RecipeError(_unknown(text))
        given.insert(0, last)
    recipe = recipes()[name]
    if len(given) != len(recipe.parameters):
        raise RecipeError(f"{text!r}: expected {recipe.usage}")
    values = {
        parameter.name: _number(text, parameter, value)
        for parameter, value in zip(recipe.parameters, given, strict=True)
    }
    return Chosen(label=text, recipe=recipe, values=values)


def chosen_among(options: Iterable[str]) -> Chosen | None:
    """Returns the recipe among a compiler's options; None if they contain none.

    Raises:
      RecipeError: there are several.
    """
    chosen = [parse(option) for option in options if is_one(option)]
    if len(chosen) > 1:
        both = " and ".join(item.label for item in chosen)
        raise RecipeError(f"{both} cannot be combined; choose one recipe")
    return chosen[0] if chosen else None


def is_one(text: str) -> bool:
    """Returns whether a text is a recipe name with valid parameters."""
    try:
        parse(text)
    except RecipeError:
        return False
    return True


def _number(text: str, parameter: Parameter, value: str) -> int:
    number = int(value) if value.isascii() and value.isdecimal() else 0
    if (
        number < 1
        or str(number) != value
        or (parameter.choices and number not in parameter.choices)
    ):
        choices_are = f"choices are {', '.join(map(str, parameter.choices))}"
        expected = choices_are if parameter.choices else "expected a number above 0"
        raise RecipeError(f"{text!r}: {parameter.name} is {value!r}; {expected}")
    return number


def _unknown(text: str) -> str:
    known = [recipe.usage for recipe in recipes().values()]
    return f"unknown recipe {text!r}; {choices(text, known, cutoff=0.5)}"
