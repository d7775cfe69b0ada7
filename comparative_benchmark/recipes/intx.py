"""intx-<bits>-<group>: weights in few bits, a scale for each group of inputs."""

import functools
from collections.abc import Callable, Mapping
from typing import Any

from comparative_benchmark.recipes.registry import Parameter, Recipe
from comparative_benchmark.recipes.rounding import Grid, Rounding


def least_db(values: Mapping[str, int]) -> float:
    """Returns 6 dB for each bit, less what layers add up to; with one bit nothing is left."""
    return max(6.0 * values["bits"] - 12.0, 3.0)


def integers(values: Mapping[str, int]) -> Grid | None:
    """Returns the grid of the weights; None for one bit, which no two libraries round alike."""
    return Grid(f"int{values['bits']}", values["group"]) if values["bits"] > 1 else None


RECIPE = Recipe(
    name="intx",
    description="<bits>-bit weights, one scale per group of inputs; products unchanged",
    parameters=(Parameter(name="bits", choices=tuple(range(1, 9))), Parameter(name="group")),
    min_sqnr_db=least_db,
    rounding=lambda values: Rounding(weights=integers(values)),
    by_nncf_in=("openvino",),
    by_backend={
        "pt_inductor": f"{__name__}:with_torchao",
        "onnxruntime": f"{__name__}:with_onnxruntime",
        "jax_xla": f"{__name__}:with_qwix",
        "openvino": f"{__name__}:with_nncf",
    },
)


def with_torchao(bits: int, group: int) -> tuple[Any, str]:
    """Returns torchao's configuration, and the class of weights that it makes."""
    import torch
    from torchao.quantization import IntxWeightOnlyConfig, PerGroup

    config = IntxWeightOnlyConfig(
        weight_dtype=getattr(torch, f"int{bits}"), granularity=PerGroup(group)
    )
    return config, "IntxUnpackedToInt8Tensor"


def with_onnxruntime(bits: int, group: int) -> tuple[Callable[[str, str], None], str]:
    """Returns what quantises a file into another, and the operator that it makes of products.

    Raises:
      NotImplementedError: it packs no such weights.
    """
    if bits not in (4, 8):
        raise NotImplementedError("it packs only 4-bit and 8-bit weights")
    if group < 16 or group & (group - 1):
        raise NotImplementedError("its group sizes are powers of two, 16 or more")
    return functools.partial(_pack, bits, group), "MatMulNBits"


def _pack(bits: int, group: int, source: str, target: str) -> None:
    import onnx
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    quantizer = MatMulNBitsQuantizer(
        onnx.load(source), bits=bits, block_size=group, is_symmetric=True
    )
    quantizer.process()
    quantizer.model.save_model_to_file(target, use_external_data_format=True)


def with_qwix(bits: int, group: int) -> dict[str, Any]:
    """Returns the settings of Qwix's rule.

    Raises:
      NotImplementedError: it has no such integers.
    """
    if bits == 1:
        raise NotImplementedError("its integers have at least 2 bits")
    return {"weight_qtype": f"int{bits}", "tile_size": group}


def with_nncf(bits: int, group: int) -> tuple[dict[str, Any], str, dict[str, Any]]:
    """Returns NNCF's settings, the type of weights that they make, and the plug-in's properties.

    Raises:
      NotImplementedError: the plug-in has no such weights.
    """
    if bits != 4:
        raise NotImplementedError("it has one scale per group only for 4-bit weights")
    from nncf import CompressWeightsMode

    settings = {"mode": CompressWeightsMode.INT4_SYM, "group_size": group}
    whole = {"ratio": 1.0, "all_layers": True}
    return {**settings, **whole}, "i4", {"DYNAMIC_QUANTIZATION_GROUP_SIZE": 0}
