"""Settings of workers: the environment variables they inherit, and the settings in effect.

A worker runs a model's code, which may be untrusted: it inherits what programs need to find their
files and libraries, and the user's settings for the stacks, but no secrets of the shell. Variables
that can change speed or numbers are recorded.

Each setting in effect is read at its source: threads from the stack, the mode of subnormal numbers
from the thread that runs, `malloc` from the process, kernels from the loaded libraries.
"""

import ctypes
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Literal

import attrs
import numpy as np

from comparative_benchmark.backends.host_settings import HostSettings, threads_by_name, usable_cpus

# Port 9 has no listener, so connections are refused at once.
_NOWHERE = "http://127.0.0.1:9"
_HERE = "localhost,127.0.0.1,::1"
OFFLINE_VARIABLES = {
    **{
        spelt: _NOWHERE
        for scheme in ("http", "https", "ftp", "all")
        for spelt in (f"{scheme}_proxy", f"{scheme}_proxy".upper())
    },
    "no_proxy": _HERE,
    "NO_PROXY": _HERE,
    # Otherwise hubs retry for half a minute.
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
}
# Names and messages of errors caused by these variables.
OFFLINE_ERRORS = ("OfflineModeIsEnabled", "LocalEntryNotFoundError", "NetworkRefusedError")
_WORDS = ("offline mode", "couldn't connect to", "connection refused", "127.0.0.1:9")

# Variables that change speed or numbers: of compilers, runtimes, math libraries, threads and
# allocators.
_TELLING = re.compile(
    r"""
    (XLA|JAX|TF|TF2|KERAS|TORCH|TORCHINDUCTOR|TORCHDYNAMO|PYTORCH|TRITON|INDUCTOR|IREE|ORT
    |OV|OPENVINO|LITERT|TFLITE|ONEDNN|DNNL|MKL|MKLDNN|OMP|KMP|GOMP|OPENBLAS|GOTO|BLIS|BLAS|ATEN
    |NUMEXPR|VECLIB|TBB|EIGEN|NPY|CUDA|CUBLAS|CUBLASLT|CUDNN|NCCL|NVIDIA|NVTE|HIP|ROCR|HSA|MALLOC
    |JEMALLOC|TCMALLOC|MIMALLOC)_\w+
    |LD_PRELOAD|LD_LIBRARY_PATH|LD_BIND_NOW|GLIBC_TUNABLES|PYTHONMALLOC|PYTHONOPTIMIZE|PYTHON_GIL
    |PYTHONHASHSEED|THP_MEM_ALLOC_ENABLE
    """,
    re.VERBOSE,
)
_NEEDED = re.compile(
    r"""
    PATH|HOME|USER|LOGNAME|SHELL|LANG|LANGUAGE|TZ|TERM|COLUMNS|LINES|TMPDIR|TEMP|TMP|HOSTNAME
    |VIRTUAL_ENV|(HTTP|HTTPS|ALL|NO)_PROXY|(http|https|all|no)_proxy|CURL_CA_BUNDLE
    |REQUESTS_CA_BUNDLE|NO_COLOR|FORCE_COLOR|CC|CXX|SOURCE_DATE_EPOCH|STORAGE_EMULATOR_HOST
    |(CBS|LC|XDG|PYTHON|CONDA|SSL|HF|TRANSFORMERS|SLURM)_?\w*
    """,
    re.VERBOSE,
)
_SECRET = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|KEY(?!BOARD)|AUTH|COOKIE|JWT", re.IGNORECASE)

Denormals = Literal["kept", "ftz", "daz", "ftz+daz"]

_BLAS = re.compile(r"lib[\w-]*(openblas|mkl_rt|mkl_core|blis|nvpl_blas|armpl|cblas)[\w.-]*")

# Names of the function that returns version and kernels, in different builds of OpenBLAS.
_OPENBLAS_CONFIG = tuple(
    f"{prefix}openblas_get_config{suffix}" for prefix in ("scipy_", "") for suffix in ("64_", "")
)


def is_offline_error(text: str) -> bool:
    """Returns whether an error's text shows that it needed the network."""
    return any(name in text for name in OFFLINE_ERRORS) or any(
        word in text.lower() for word in _WORDS
    )


def for_worker(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the part of an environment that a worker inherits.

    This is what programs need, and what `recorded_variables` returns, without names of secrets.
    """
    return {
        name: value
        for name, value in environment.items()
        if (_NEEDED.fullmatch(name) or _TELLING.fullmatch(name)) and not _is_secret(name)
    }


def recorded_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables that can change speed or numbers, by name."""
    names = (name for name in environment if _TELLING.fullmatch(name) and not _is_secret(name))
    return {name: environment[name] for name in sorted(names)}


def _is_secret(name: str) -> bool:
    # The variable for tokenizers' threads is not a secret.
    return _SECRET.search(name) is not None and "TOKENIZERS" not in name


@attrs.frozen(kw_only=True)
class EffectiveSettings:
    """Effective settings of a process; None for unknown values.

    Attributes:
      threads: number of threads that share one operator.
      inter_op_threads: number of threads that run independent operators.
      threads_told_by: source of these two numbers.
      denormals_before, denormals_after: treatment of subnormal numbers in the thread that runs the
        program, before the first run and after the last one: results flushed to zero (`ftz`),
        operands taken as zero (`daz`), both, or neither (`kept`).
      allocator: the library whose `malloc` the process calls.
      blas: libraries for matrix products: first the stack's own, then other loaded libraries.
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
    """Returns the effective settings of this process.

    Args:
      host: settings that the stack reports; None if it reports nothing.
      denormals_before: result of `denormals` before the first run.
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
    """Returns this thread's treatment of subnormal numbers, found by a product of each kind.

    It checks the bits of the products: a comparison might treat a subnormal number as zero.
    """
    smallest = np.array([1, 0x00800000], np.uint32).view(np.float32)  # subnormal, normal
    factors = np.array([2.0**24, 0.5], np.float32)  # to a normal number, to a subnormal one
    taken_as_zero, flushed = (smallest * factors).view(np.uint32) == 0
    if taken_as_zero:
        return "ftz+daz" if flushed else "daz"
    return "ftz" if flushed else "kept"


def allocator() -> str | None:
    """Returns the source of this process's `malloc`: a library's file, or glibc with its version.

    A stack may have another, internal allocator, which may show only in the name of a thread.
    """
    with suppress(AttributeError, OSError):
        address = ctypes.cast(ctypes.CDLL(None).malloc, ctypes.c_void_p).value or 0
        name = next((file.name for low, high, file in _mapped() if low <= address < high), None)
        if name is None:
            return None
        if re.fullmatch(r"libc(\.so\.6|-2\.\d+\.so)", name):
            name = os.confstr("CS_GNU_LIBC_VERSION") or name
        inside = any(thread.startswith("jemalloc_bg") for thread in threads_by_name())
        return f"{name} with jemalloc" if inside else name
    return None


def loaded_blas() -> list[str]:
    """Returns the loaded math libraries; for OpenBLAS its version and kernels."""
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
    """Yields the address ranges of mapped files in this process."""
    with suppress(OSError):
        for line in Path("/proc/self/maps").read_text("utf-8", "surrogateescape").splitlines():
            addresses, _, _, _, _, *file = line.split(maxsplit=5)
            if file and file[0].startswith("/"):
                low, high = (int(end, 16) for end in addresses.split("-"))
                yield low, high, Path(file[0])
