"""Clocks of NVIDIA GPUs, and what holds them back, asked of the driver's library (NVML).

nvidia-smi would tell the same, but starting it takes far longer than a block.
"""

import ctypes
from collections.abc import Mapping
from functools import cache
from typing import Any

import attrs

# nvmlClocksEventReasons; what is not here is harmless: an idle GPU, or clocks that a user has set.
SLOWDOWNS: Mapping[int, str] = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "heat (software)",
    0x40: "heat (hardware)",
    0x80: "power brake",
    0x100: "display clocks",
}
_NVML_CLOCK_SM = 1
# The newer name first; drivers before 535 have the older one alone.
_REASONS = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")


@attrs.frozen(kw_only=True)
class GpuClocks:
    """One GPU at one moment; None where the driver does not tell.

    Attributes:
      index: as nvidia-smi counts, which `CUDA_VISIBLE_DEVICES` does not change.
      sm_mhz: clock of the multiprocessors.
      held_back_by: why it is not higher; empty for no reason of note.
    """

    index: int
    sm_mhz: int | None
    held_back_by: tuple[str, ...] | None


def slowdowns(bits: int) -> tuple[str, ...]:
    """Returns the names of the reasons in a mask that slow a GPU down."""
    return tuple(name for bit, name in SLOWDOWNS.items() if bits & bit)


def read(library: Any = None) -> tuple[GpuClocks, ...]:
    """Returns the clocks of all GPUs; none where there is no NVML."""
    nvml = library or _nvml()
    count = ctypes.c_uint()
    if nvml is None or nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)):
        return ()
    return tuple(_read_one(nvml, index) for index in range(count.value))


def _read_one(nvml: Any, index: int) -> GpuClocks:
    device, mhz, bits = ctypes.c_void_p(), ctypes.c_uint(), ctypes.c_ulonglong()
    if nvml.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(device)):
        return GpuClocks(index=index, sm_mhz=None, held_back_by=None)
    # All of NVML returns 0 for success.
    no_clock = nvml.nvmlDeviceGetClockInfo(device, _NVML_CLOCK_SM, ctypes.byref(mhz))
    reasons = next((getattr(nvml, name) for name in _REASONS if hasattr(nvml, name)), None)
    no_reasons = reasons is None or reasons(device, ctypes.byref(bits))
    return GpuClocks(
        index=index,
        sm_mhz=None if no_clock else mhz.value,
        held_back_by=None if no_reasons else slowdowns(bits.value),
    )


@cache
def _nvml() -> Any:
    """Returns the library, loaded and initialised once for each process; None where it is not."""
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return None
    return None if library.nvmlInit_v2() else library
