"""int4wo-<group>: weights in 4 bits, packed, by a kernel of the device."""

from collections.abc import Callable
from typing import Any

from comparative_benchmark.recipes.registry import Parameter, Recipe
from comparative_benchmark.recipes.rounding import Grid, Rounding

RECIPE = Recipe(
    name="int4wo",
    description="packed 4-bit weights, one scale per group of inputs; products unchanged",
    parameters=(Parameter(name="group", choices=(32, 64, 128, 256)),),
    min_sqnr_db=lambda _: 10.0,
    rounding=lambda values: Rounding(weights=Grid("int4", values["group"])),
    by_nncf_in=("openvino",),
    by_backend={
        "pt_inductor": f"{__name__}:with_torchao",
        "onnxruntime": f"{__name__}:with_onnxruntime",
        "jax_xla": f"{__name__}:with_qwix",
        "openvino": f"{__name__}:with_nncf",
    },
)


def with_torchao(group: int) -> tuple[Any, str]:
    """Returns torchao's configuration, and the class of weights that it makes.

    The public one needs a package of CUDA kernels; the prototype has PyTorch's own for CPUs.
    """
    import torch

    if torch.cuda.is_available():
        from torchao.quantization import Int4WeightOnlyConfig

        return Int4WeightOnlyConfig(group_size=group, set_inductor_config=False), "Int4Tensor"
    from torchao.prototype.quantization.int4 import PrototypeInt4WeightOnlyConfig

    config = PrototypeInt4WeightOnlyConfig(group_size=group, set_inductor_config=False)
    return config, "Int4OpaqueTensor"


def with_onnxruntime(group: int) -> tuple[Callable[[str, str], None], str]:
    """Returns what quantises a file into another, and the operator that it makes of products."""
    from comparative_benchmark.recipes.intx import with_onnxruntime as in_bits

    return in_bits(4, group)


def with_qwix(group: int) -> dict[str, Any]:
    """Returns the settings of Qwix's rule."""
    return {"weight_qtype": "int4", "tile_size": group}


def with_nncf(group: int) -> tuple[dict[str, Any], str, dict[str, Any]]:
    """Returns NNCF's settings, the type of weights that they make, and the plug-in's properties."""
    from comparative_benchmark.recipes.intx import with_nncf as in_bits

    return in_bits(4, group)
