"""Configurations of torchao, Qwix, NNCF and ONNX Runtime for the recipes of the table.

Only workers import this module. Each function gets the settings of the table and the parameters of
the recipe. It raises NotImplementedError if the library cannot apply the recipe here.
"""

import functools
import pkgutil
import platform
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

# torchao's configuration, and the class of the weights or layers that it makes.
_Torchao = tuple[Any, str]
# NNCF's settings, the type of the compressed weights, and properties for OpenVINO's plug-in.
_Nncf = tuple[dict[str, Any], str, dict[str, Any]]
# A function that quantises one file into another, and the operator that products become.
_OnnxRuntime = tuple[Callable[[str, str], object], str]


def torchao(config: str, weight_class: str, **settings: Any) -> _Torchao:
    """Returns a configuration, given its class in `torchao.quantization`, or `module:class`."""
    path = config if ":" in config else f"quantization:{config}"
    return pkgutil.resolve_name(f"torchao.{path}")(**settings), weight_class


def torchao_intx(config: str, granularity: str, bits: int, group: int) -> _Torchao:
    """Returns a configuration of integers, given its class and its argument for groups."""
    import torch
    from torchao.quantization import PerGroup

    settings = {"weight_dtype": getattr(torch, f"int{bits}"), granularity: PerGroup(group)}
    return torchao(config, "IntxUnpackedToInt8Tensor", **settings)


def torchao_int4(group: int) -> _Torchao:
    """Returns the public configuration, which needs CUDA; without a GPU, a prototype's for CPUs."""
    import torch

    if torch.cuda.is_available():
        config, weight_class = "Int4WeightOnlyConfig", "Int4Tensor"
    else:
        config = "prototype.quantization.int4:PrototypeInt4WeightOnlyConfig"
        weight_class = "Int4OpaqueTensor"
    return torchao(config, weight_class, group_size=group, set_inductor_config=False)


def torchao_float8(granularity: str) -> _Torchao:
    """Returns the configuration of dynamic float8, given a class such as `PerRow`."""
    from torchao import quantization

    config = quantization.Float8DynamicActivationFloat8WeightConfig(
        granularity=getattr(quantization, granularity)(), set_inductor_config=False
    )
    return config, "Float8Tensor"


def torchao_mxfp8() -> _Torchao:
    """Returns the configuration of MXFP8.

    Without hardware for this type, values are rounded to it, but products are in bf16.
    """
    import torch
    from torchao.prototype.mx_formats import MXDynamicActivationMXWeightConfig
    from torchao.quantization.quantize_.common import KernelPreference

    able = torch.cuda.is_available() and torch.cuda.get_device_capability() >= (10, 0)
    kernel = KernelPreference.AUTO if able else KernelPreference.EMULATED
    return MXDynamicActivationMXWeightConfig(kernel_preference=kernel), "MXTensor"


def torchao_semi_sparse() -> _Torchao:
    """Returns the configuration of 2:4 sparse weights."""
    import torch

    if not torch.cuda.is_available():
        raise NotImplementedError("2:4 sparse products need an NVIDIA GPU")
    return torchao(
        "sparsity.sparse_api:SemiSparseWeightConfig", "SparseSemiStructuredTensorCUTLASS"
    )


def torchao_block_sparse(size: int) -> _Torchao:
    """Returns the configuration of weights in square blocks."""
    import torch

    if not torch.cuda.is_available():
        raise NotImplementedError("block-sparse products need Triton's GPU kernels")
    return torchao(
        "sparsity.sparse_api:BlockSparseWeightConfig", "BlockSparseTensor", blocksize=size
    )


def torchao_float8_training() -> tuple[Callable[[Any], object], str]:
    """Returns a function that converts a module, and the class of the layers that it makes."""
    from torchao.float8 import convert_to_float8_training

    return convert_to_float8_training, "Float8Linear"


def qwix(**settings: Any) -> dict[str, Any]:
    """Returns the settings of Qwix's rule."""
    return settings


def qwix_intx(bits: int, group: int) -> dict[str, Any]:
    """Returns the settings for integers."""
    if bits == 1:
        raise NotImplementedError("integers need at least 2 bits")
    return qwix(weight_qtype=f"int{bits}", tile_size=group)


def nncf(mode: str, weight_type: str, **settings: Any) -> _Nncf:
    """Returns NNCF's settings, given the name of a `CompressWeightsMode`."""
    from nncf import CompressWeightsMode

    # Otherwise the plug-in also quantises activations if the CPU has instructions for that.
    properties = {"DYNAMIC_QUANTIZATION_GROUP_SIZE": 0}
    return {"mode": CompressWeightsMode[mode], **settings}, weight_type, properties


def nncf_intx(bits: int, group: int) -> _Nncf:
    """Returns the settings for integers."""
    if bits != 4:
        raise NotImplementedError("NNCF supports one scale per group only for 4-bit weights")
    return nncf("INT4_SYM", "i4", group_size=group, ratio=1.0, all_layers=True)


def onnxruntime_int8() -> _OnnxRuntime:
    """Returns ONNX Runtime's quantiser for dynamic int8."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    quantise = functools.partial(
        quantize_dynamic,
        per_channel=True,
        weight_type=QuantType.QUInt8 if _saturates() else QuantType.QInt8,
        op_types_to_quantize=["MatMul", "Gemm"],
        use_external_data_format=True,
    )
    return quantise, "MatMulInteger"


def _saturates() -> bool:
    """Returns whether products of unsigned and signed bytes saturate at 16 bits on this CPU.

    They do on x86 without VNNI (`vpmaddubsw`). ONNX Runtime's documentation on quantisation advises
    unsigned weights there, or weights of 7 bits.
    """
    if platform.machine() not in ("x86_64", "AMD64"):
        return False
    try:
        flags = Path("/proc/cpuinfo").read_text()
    except OSError:
        return False
    return "flags" in flags and not re.search(r"\bavx(512)?_vnni\b", flags)


def onnxruntime_intx(bits: int, group: int) -> _OnnxRuntime:
    """Returns ONNX Runtime's quantiser for packed integers."""
    if bits not in (4, 8):
        raise NotImplementedError("MatMulNBits packs only 4-bit and 8-bit weights")
    if group < 16 or group & (group - 1):
        raise NotImplementedError("the group size must be a power of two and at least 16")
    return functools.partial(_pack, bits, group), "MatMulNBits"


def _pack(bits: int, group: int, source: str, target: str) -> None:
    import onnx
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    quantizer = MatMulNBitsQuantizer(
        onnx.load(source), bits=bits, block_size=group, is_symmetric=True
    )
    quantizer.process()
    quantizer.model.save_model_to_file(target, use_external_data_format=True)
