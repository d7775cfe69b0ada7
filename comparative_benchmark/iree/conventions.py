"""The interface between a compiled program and its callers: names, types, and the NVIDIA GPU.

Imports neither IREE nor a framework. A program for NVIDIA GPUs holds its kernels as PTX, which the
driver compiles for its GPU when the program is loaded: PTX of older GPUs runs, PTX of newer ones
does not.
"""

import ctypes
import re
from collections.abc import Callable
from typing import Any

import attrs
import numpy.typing as npt

from comparative_benchmark.backends.api import UnsupportedError

Capability = tuple[int, int]

# Targets that the compiler of IREE 3.13 accepts; it refuses e.g. sm_90, sm_100 and sm_103.
CUDA_TARGETS: tuple[Capability, ...] = (
    *((6, 0), (6, 1), (6, 2), (7, 0), (7, 2), (7, 5)),
    *((8, 0), (8, 6), (8, 7), (8, 9), (12, 0), (12, 1)),
)
COMMON_CUDA_TARGET = "sm_80"
"""What runs on all GPUs since A100: for programs that are compiled where no GPU is known."""

# Without this pass IREE 3.13 cannot compile products of bf16 matrices ("failed to distribute").
# With it they are summed in fp32, as tensor cores do. Programs without bf16 do not change. IREE
# ignores a pipeline that it cannot parse.
_BF16_SUMS_IN_FP32 = (
    "--iree-preprocessing-pass-pipeline=builtin.module(util.func("
    "iree-preprocessing-promote-linalg-outputs{type=bf16 operation=all}))"
)

_DRIVER = "libcuda.so.1"
# CUdevice_attribute values from cuda.h.
_CAPABILITY_MAJOR, _CAPABILITY_MINOR = 75, 76

_PTX_TARGET = re.compile(rb"^\.target sm_(\d+)(\d)", re.MULTILINE)
_TF32 = re.compile(rb"\.tf32\b")


@attrs.frozen(kw_only=True)
class Ptx:
    """Facts from the PTX of a program.

    Attributes:
      capability: compute capability of the oldest GPU that runs it.
      uses_tf32: whether an instruction takes TF32 operands.
    """

    capability: Capability
    uses_tf32: bool

    @property
    def target(self) -> str:
        """The target that it was compiled for, e.g. `sm_80`."""
        return _target_name(self.capability)

    def runs_on(self, capability: Capability | None) -> bool:
        """Returns whether a GPU can run it; True for an unknown GPU."""
        return capability is None or capability >= self.capability


def ptx_of(program: bytes) -> Ptx | None:
    """Returns facts from the PTX in a compiled program; None if it contains no PTX."""
    targets = {(int(major), int(minor)) for major, minor in _PTX_TARGET.findall(program)}
    if not targets:
        return None
    return Ptx(capability=max(targets), uses_tf32=_TF32.search(program) is not None)


def cuda_flags(target: str) -> tuple[str, ...]:
    """Returns the compiler's flags for a target, beyond those of its device."""
    return (f"--iree-cuda-target={target}", _BF16_SUMS_IN_FP32)


def cuda_target_for(capability: Capability | None) -> str:
    """Returns the newest target that a GPU runs; `COMMON_CUDA_TARGET` for an unknown GPU."""
    possible = [target for target in CUDA_TARGETS if capability and target <= capability]
    return _target_name(max(possible)) if possible else COMMON_CUDA_TARGET


def compute_capability(load: Callable[[str], Any] = ctypes.CDLL) -> Capability | None:
    """Returns the compute capability of the first GPU, which IREE uses, from the driver.

    Args:
      load: loads a library by its name; replaceable in tests.

    Returns:
      None if there is no driver or no GPU.
    """
    try:
        driver = load(_DRIVER)
    except OSError:
        return None
    device, value = ctypes.c_int(), ctypes.c_int()
    if driver.cuInit(0) or driver.cuDeviceGet(ctypes.byref(device), 0):
        return None
    capabilities = []
    for attribute in (_CAPABILITY_MAJOR, _CAPABILITY_MINOR):
        if driver.cuDeviceGetAttribute(ctypes.byref(value), attribute, device):
            return None
        capabilities.append(value.value)
    return capabilities[0], capabilities[1]


def _target_name(capability: Capability) -> str:
    return f"sm_{capability[0]}{capability[1]}"


PARAMETER_SCOPE = "model"
"""Scope under which a program looks its weights up; the runtime provides the archive under it."""

ENTRY = "main"

_TYPES = {"bfloat16": "bf16", "bool": "i1"}
# Archives store unsigned integers as their bytes, which is what signless types read.
_LETTERS = {"f": "f", "i": "i", "u": "i"}


def type_of(value: npt.NDArray[Any]) -> str:
    """Returns shape and element type of an array in IREE's notation, e.g. `1x8xbf16`.

    Raises:
      UnsupportedError: the type is not in the table, e.g. a complex type.
    """
    dtype = value.dtype
    if dtype.name not in _TYPES and dtype.kind not in _LETTERS:
        raise UnsupportedError(
            f"IREE cannot read weights or inputs of type {dtype.name} here: choose another backend"
        )
    kind = _TYPES.get(dtype.name) or f"{_LETTERS[dtype.kind]}{dtype.itemsize * 8}"
    return "".join(f"{size}x" for size in value.shape) + kind
