"""Environment variables: which reach a worker, and which are part of a result.

A worker runs code of a model, which may be anybody's: it gets what programs need to find their
files and libraries, and what its user chose for the stacks, but no secret of the shell. What can
change speed or numbers is recorded.
"""

import re
from collections.abc import Mapping

# Nobody listens on port 9, so what goes there is refused at once.
_NOWHERE = "http://127.0.0.1:9"
_HERE = "localhost,127.0.0.1,::1"
VARIABLES = {
    **{
        spelt: _NOWHERE
        for scheme in ("http", "https", "ftp", "all")
        for spelt in (f"{scheme}_proxy", f"{scheme}_proxy".upper())
    },
    "no_proxy": _HERE,
    "NO_PROXY": _HERE,
    # Hubs try for half a minute else.
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
}
# What errors are called, and what they say, that come of it.
ERRORS = ("OfflineModeIsEnabled", "LocalEntryNotFoundError", "NetworkRefusedError")
_WORDS = ("offline mode", "couldn't connect to", "connection refused", "127.0.0.1:9")


def is_why(text: str) -> bool:
    """Tells whether an error's text says that it needed the network."""
    return any(name in text for name in ERRORS) or any(word in text.lower() for word in _WORDS)


# What changes speed or numbers: of compilers, their runtimes, mathematics and threads, allocators.
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


def for_worker(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns what of an environment a worker inherits.

    That is what programs need, and what `telling` returns; nothing whose name is that of a secret.
    """
    return {
        name: value
        for name, value in environment.items()
        if (_NEEDED.fullmatch(name) or _TELLING.fullmatch(name)) and not _is_secret(name)
    }


def telling(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables that can change speed or numbers, by name."""
    found = {
        name: value
        for name, value in environment.items()
        if _TELLING.fullmatch(name) and not _is_secret(name)
    }
    return dict(sorted(found.items()))


def _is_secret(name: str) -> bool:
    # Whether tokenizers use threads is none.
    return _SECRET.search(name) is not None and "TOKENIZERS" not in name
