"""Bindings of NVIDIA's driver library (NVML); functions return None for unavailable values.

nvidia-smi would report the same, but starting it takes far longer than a block.
"""

import ctypes
import os
from functools import cache
from pathlib import Path
from typing import Any

# Nodes of AMD's driver, of WSL, and of NVIDIA boards without PCI.
_OTHER_NODES = ("dev/kfd", "dev/dxg", "dev/nvhost*", "dev/nvgpu*", "dev/nvmap")
_NODES = ("dev/nvidia*", "proc/driver/nvidia", *_OTHER_NODES)
_SUCCESS, _TOO_SMALL = 0, 7
_CLOCK_SM = 1
# The newer name first; drivers before 535 have only the older one.
_REASONS = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
_NAME_BYTES = 96
_ROOM_FOR_PROCESSES = 64


class _Memory(ctypes.Structure):
    _fields_ = (
        ("total", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    )


class _Utilization(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class _OldProcess(ctypes.Structure):
    _fields_ = (("pid", ctypes.c_uint), ("memory", ctypes.c_ulonglong))


class _Process(ctypes.Structure):
    _fields_ = (
        *_OldProcess._fields_,
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


_PROCESSES: tuple[tuple[str, type[ctypes.Structure]], ...] = (
    ("nvmlDeviceGetComputeRunningProcesses_v3", _Process),
    ("nvmlDeviceGetComputeRunningProcesses_v2", _Process),
    ("nvmlDeviceGetComputeRunningProcesses", _OldProcess),
)


@cache
def library() -> Any:
    """Returns the library, loaded and initialised once per process; None without it."""
    try:
        driver = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return None
    return driver if driver.nvmlInit_v2() == _SUCCESS else None


def why_no_gpu() -> str | None:
    """Returns why no framework can use a GPU of this machine; None if there may be one.

    Only certain reasons count: an unknown driver may have other device nodes.
    """
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None and visible.strip() in ("", "-1"):
        return f"CUDA_VISIBLE_DEVICES={visible!r} hides all GPUs"
    if not any(next(Path("/").glob(node), None) for node in _NODES):
        return "this machine has no GPU: /dev contains no GPU device"
    nvml = library()
    others = any(next(Path("/").glob(node), None) for node in _OTHER_NODES)
    if nvml is not None and not others and count(nvml) == 0:
        return "the NVIDIA driver finds no GPU"
    return None


def count(nvml: Any) -> int:
    """Returns the number of GPUs."""
    value = ctypes.c_uint()
    return value.value if _ask(nvml, "nvmlDeviceGetCount_v2", ctypes.byref(value)) else 0


def device(nvml: Any, index: int) -> Any:
    """Returns the handle of a GPU by its nvidia-smi index."""
    return _handle(nvml, "nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index))


def device_of_uuid(nvml: Any, uuid: str) -> Any:
    """Returns the handle of a GPU, or of a part of one (MIG)."""
    return _handle(nvml, "nvmlDeviceGetHandleByUUID", ctypes.c_char_p(uuid.encode()))


def part(nvml: Any, handle: Any, index: int) -> Any:
    """Returns the handle of a part (MIG) of a GPU."""
    return _handle(nvml, "nvmlDeviceGetMigDeviceHandleByIndex", handle, ctypes.c_uint(index))


def whole(nvml: Any, handle: Any) -> Any:
    """Returns the handle of the GPU that a part belongs to."""
    return _handle(nvml, "nvmlDeviceGetDeviceHandleFromMigDeviceHandle", handle)


def uuid(nvml: Any, handle: Any) -> str | None:
    """Returns a GPU's unique identifier, as `CUDA_VISIBLE_DEVICES` accepts it."""
    return _text(nvml, "nvmlDeviceGetUUID", handle)


def name(nvml: Any, handle: Any) -> str | None:
    """Returns the name of the product."""
    return _text(nvml, "nvmlDeviceGetName", handle)


def has_parts(nvml: Any, handle: Any) -> bool | None:
    """Returns whether a GPU is divided (MIG)."""
    now, later = ctypes.c_uint(), ctypes.c_uint()
    asked = _ask(nvml, "nvmlDeviceGetMigMode", handle, ctypes.byref(now), ctypes.byref(later))
    return bool(now.value) if asked else None


def sm_mhz(nvml: Any, handle: Any) -> int | None:
    """Returns the clock of the multiprocessors."""
    mhz = ctypes.c_uint()
    asked = _ask(nvml, "nvmlDeviceGetClockInfo", handle, _CLOCK_SM, ctypes.byref(mhz))
    return mhz.value if asked else None


def clock_reasons(nvml: Any, handle: Any) -> int | None:
    """Returns the reasons for the current clocks, as a mask (nvmlClocksEventReasons)."""
    bits = ctypes.c_ulonglong()
    known = (question for question in _REASONS if hasattr(nvml, question))
    return bits.value if _ask(nvml, next(known, ""), handle, ctypes.byref(bits)) else None


def memory(nvml: Any, handle: Any) -> tuple[int, int] | None:
    """Returns the bytes used by anyone, and the total."""
    usage = _Memory()
    if not _ask(nvml, "nvmlDeviceGetMemoryInfo", handle, ctypes.byref(usage)):
        return None
    return int(usage.used), int(usage.total)


def busy_percent(nvml: Any, handle: Any) -> int | None:
    """Returns the percentage of the last second or less in which a kernel was running."""
    usage = _Utilization()
    asked = _ask(nvml, "nvmlDeviceGetUtilizationRates", handle, ctypes.byref(usage))
    return int(usage.gpu) if asked else None


def processes(nvml: Any, handle: Any) -> tuple[int, ...] | None:
    """Returns the processes with a compute context, by number.

    The numbers are in the driver's namespace: inside a container often the host's, or there are
    none.
    """
    for question, kind in _PROCESSES:
        ask, room, code = getattr(nvml, question, None), _ROOM_FOR_PROCESSES, _TOO_SMALL
        while ask is not None and code == _TOO_SMALL:
            # Twice the size passed to NVML: early drivers of 535 write longer entries.
            entries, number = (kind * (2 * room))(), ctypes.c_uint(room)
            code = ask(handle, ctypes.byref(number), entries)
            room = max(2 * room, number.value)
        if code == _SUCCESS:
            return tuple(sorted({entries[index].pid for index in range(number.value)}))
    return None


def _handle(nvml: Any, question: str, *arguments: Any) -> Any:
    handle = ctypes.c_void_p()
    return handle if _ask(nvml, question, *arguments, ctypes.byref(handle)) else None


def _text(nvml: Any, question: str, handle: Any) -> str | None:
    buffer = ctypes.create_string_buffer(_NAME_BYTES)
    asked = _ask(nvml, question, handle, buffer, ctypes.c_uint(_NAME_BYTES))
    return buffer.value.decode(errors="replace") if asked else None


def _ask(nvml: Any, question: str, *arguments: Any) -> bool:
    """Returns whether NVML succeeded; a driver may lack a function, or know it and fail."""
    function = getattr(nvml, question, None) if question else None
    return function is not None and function(*arguments) == _SUCCESS
