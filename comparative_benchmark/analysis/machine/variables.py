"""Environment variables: the ones that workers inherit, and the ones that results record.

A worker runs a model's code, which may be untrusted: it inherits what programs need to find their
files and libraries, and the user's settings for the stacks, but no secrets of the shell. Variables
that can change speed or numbers are recorded.
"""

import re
from collections.abc import Mapping

# Port 9 has no listener, so connections are refused at once.
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
    # Otherwise hubs retry for half a minute.
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
}
# Names and messages of errors caused by these variables.
ERRORS = ("OfflineModeIsEnabled", "LocalEntryNotFoundError", "NetworkRefusedError")
_WORDS = ("offline mode", "couldn't connect to", "connection refused", "127.0.0.1:9")


def is_why(text: str) -> bool:
    """Returns whether an error's text shows that it needed the network."""
    return any(name in text for name in ERRORS) or any(word in text.lower() for word in _WORDS)


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


def for_worker(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the part of an environment that a worker inherits.

    This is what programs need, and what `telling` returns, without names of secrets.
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
    # The variable for tokenizers' threads is not a secret.
    return _SECRET.search(name) is not None and "TOKENIZERS" not in name
