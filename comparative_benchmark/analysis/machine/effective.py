"""What a worker process computed with, beside what it was asked for.

Each fact is found where it holds: threads are asked of the stack, the mode of subnormal numbers of
the thread that runs, `malloc` of the process, kernels of the libraries that are loaded.
"""

import ctypes
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Literal

import attrs
import numpy as np

from comparative_benchmark.backends.host_settings import HostSettings, threads_by_name, usable_cpus

Denormals = Literal["kept", "ftz", "daz", "ftz+daz"]

_BLAS = re.compile(r"lib[\w-]*(openblas|mkl_rt|mkl_core|blis|nvpl_blas|armpl|cblas)[\w.-]*")
# How builds of OpenBLAS call the function that tells version and kernels.
_OPENBLAS_CONFIG = tuple(
    f"{prefix}openblas_get_config{suffix}" for prefix in ("scipy_", "") for suffix in ("64_", "")
)


@attrs.frozen(kw_only=True)
class EffectiveSettings:
    """What a process computed with; None where that cannot be told.

    Attributes:
      threads, inter_op_threads, threads_told_by: see `backends.host_settings.HostSettings`.
      denormals_before, denormals_after: what the thread that runs the program does with subnormal
        numbers, before the first run and after the last one: results flushed to zero (`ftz`),
        operands taken as zero (`daz`), both, or neither (`kept`).
      allocator: whose `malloc` the process calls.
      blas: libraries of products: the stack's own, then others that are loaded.
      affinity: CPUs that the process may use.
    """

    threads: int | None = None
    inter_op_threads: int | None = None
    threads_told_by: str | None = None
    denormals_before: Denormals | None = None
    denormals_after: Denormals | None = None
    allocator: str | None = None
    blas: tuple[str, ...] = ()
    affinity: tuple[int, ...] = ()


def effective_settings(
    host: HostSettings | None, *, denormals_before: Denormals | None
) -> EffectiveSettings:
    """Returns what this process computes with.

    Args:
      host: what the stack says; None if it says nothing.
      denormals_before: what `denormals` gave before the first run.
    """
    host = host or HostSettings()
    own = (host.blas,) if host.blas else ()
    return EffectiveSettings(
        threads=host.threads,
        inter_op_threads=host.inter_op_threads,
        threads_told_by=host.threads_told_by,
        denormals_before=denormals_before,
        denormals_after=denormals(),
        allocator=allocator(),
        blas=(*own, *loaded_blas()),
        affinity=tuple(usable_cpus()),
    )


def denormals() -> Denormals:
    """Returns what this thread does with subnormal numbers, by a product of each kind.

    The bits of the products are looked at: a comparison might take a subnormal number as zero.
    """
    smallest = np.array([1, 0x00800000], np.uint32).view(np.float32)  # subnormal, normal
    factors = np.array([2.0**24, 0.5], np.float32)  # to a normal number, to a subnormal one
    taken_as_zero, flushed = (smallest * factors).view(np.uint32) == 0
    if taken_as_zero:
        return "ftz+daz" if flushed else "daz"
    return "ftz" if flushed else "kept"


def allocator() -> str | None:
    """Returns whose `malloc` this process calls: a library's file, or glibc with its version.

    A stack may have another allocator inside, of which only the name of a thread may tell.
    """
    with suppress(AttributeError, OSError):
        address = ctypes.cast(ctypes.CDLL(None).malloc, ctypes.c_void_p).value or 0
        name = next((file.name for low, high, file in _mapped() if low <= address < high), None)
        if name is None:
            return None
        if re.fullmatch(r"libc(\.so\.6|-2\.\d+\.so)", name):
            name = os.confstr("CS_GNU_LIBC_VERSION") or name
        inside = any(thread.startswith("jemalloc_bg") for thread in threads_by_name())
        return f"{name}, jemalloc inside" if inside else name
    return None


def loaded_blas() -> list[str]:
    """Returns the loaded libraries of products; of OpenBLAS version and kernels."""
    files = {file for _, _, file in _mapped() if _BLAS.fullmatch(file.name)}
    return sorted({_openblas_config(file) or file.name for file in files})


def _openblas_config(file: Path) -> str | None:
    with suppress(OSError):
        library = ctypes.CDLL(str(file), mode=os.RTLD_NOLOAD | os.RTLD_NOW)
        for name in _OPENBLAS_CONFIG:
            with suppress(AttributeError):
                function = getattr(library, name)
                function.restype = ctypes.c_char_p
                return " ".join(function().decode().split())
    return None


def _mapped() -> Iterator[tuple[int, int, Path]]:
    """Yields where files are in this process's memory."""
    with suppress(OSError):
        for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
            addresses, _, _, _, _, *file = line.split(maxsplit=5)
            if file and file[0].startswith("/"):
                low, high = (int(end, 16) for end in addresses.split("-"))
                yield low, high, Path(file[0])
