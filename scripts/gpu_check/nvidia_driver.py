"""Is there an NVIDIA GPU? Asked of its driver, since frameworks may be missing or broken.

Imports nothing but the standard library: this is the first thing that the check does.
"""

import ctypes
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

_DRIVER = "libcuda.so.1"
_CUDA_ERROR_NO_DEVICE = 100
_PATIENCE_S = 30
_REHEARSE = "rehearse the same steps on the CPU with `--device host-cpu`"


def problem(
    load: Callable[[str], Any] = ctypes.CDLL, list_gpus: Callable[[], int] | None = None
) -> str | None:
    """Returns why no NVIDIA GPU can be used here, in one line with what to do; None if one can.

    Args:
      load: loads a shared library, or raises an `OSError`.
      list_gpus: how many GPUs `nvidia-smi` sees; asked where the driver library is not there.
    """
    try:
        driver = load(_DRIVER)
    except OSError:
        if (list_gpus or gpus_of_nvidia_smi)():
            return _unusable(f"nvidia-smi lists a GPU, but {_DRIVER} cannot be loaded")
        return f"no NVIDIA GPU found ({_DRIVER} cannot be loaded): {_REHEARSE}"
    code = driver.cuInit(0)
    if code == _CUDA_ERROR_NO_DEVICE:
        return _no_device()
    if code:
        return _unusable(f"cuInit returned error {code}")
    count = ctypes.c_int(0)
    if code := driver.cuDeviceGetCount(ctypes.byref(count)):
        return _unusable(f"cuDeviceGetCount returned error {code}")
    return None if count.value else _no_device()


def loaded_library(maps: Path = Path("/proc/self/maps")) -> Path | None:
    """Returns the file of the driver library that this process has loaded; None if it has none."""
    for line in maps.read_text(encoding="utf-8", errors="replace").splitlines():
        path = Path(line.partition("/")[1] + line.partition("/")[2])
        if path.name.startswith("libcuda.so"):
            return path
    return None


def gpus_of_nvidia_smi() -> int:
    """Returns how many GPUs `nvidia-smi -L` lists; none where it cannot tell."""
    try:
        done = subprocess.run(
            ["nvidia-smi", "-L"], capture_output=True, text=True, timeout=_PATIENCE_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return 0
    return sum(line.startswith("GPU ") for line in done.stdout.splitlines())


def _no_device() -> str:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    shown = "" if visible is None else f", with CUDA_VISIBLE_DEVICES={visible!r}"
    return f"no NVIDIA GPU found (the driver reports none{shown}): {_REHEARSE}"


def _unusable(why: str) -> str:
    return f"the NVIDIA GPU cannot be used: {why}; repair the driver, or {_REHEARSE}"
