"""The part of jaxlib that the suite uses, all of it private, and the PJRT client for NVIDIA GPUs.

jaxlib supports its interface only for JAX, and only for a matching version. The names come from
JAX: `jax._src.compiler` compiles with them, `jax._src.interpreters.pxla` puts arrays on devices.

The client for GPUs comes from the plug-in that `jax[cuda13]` installs. The plug-in's own Python
module, `jax_plugins.xla_cuda13`, would import JAX; this module repeats its steps.
"""

import contextlib
import ctypes
import functools
import importlib
import importlib.util
from importlib.metadata import version
from pathlib import Path
from typing import Any

from comparative_benchmark.backends.api import UnsupportedError

WRITTEN_FOR = "0.10.2"


def differs(error: Exception) -> UnsupportedError:
    """Returns an error with a remedy if jaxlib lacks a name, or takes other arguments."""
    return UnsupportedError(
        f"jaxlib {version('jaxlib')} lacks the private interface of {WRITTEN_FOR}, which this "
        f"backend needs ({error}): run pip install jax=={WRITTEN_FOR} jaxlib=={WRITTEN_FOR}"
    )


try:
    from jaxlib import _hlo as hlo
    from jaxlib import _jax as extension
    from jaxlib import _profiler as profiler
    from jaxlib import xla_client

    # JAX raises it as `jax.errors.JaxRuntimeError`.
    XlaError: type[Exception] = extension.JaxRuntimeError
except (ImportError, AttributeError) as error:
    raise differs(error) from error

__all__ = ["WRITTEN_FOR", "XlaError", "differs", "extension", "hlo", "profiler", "xla_client"]


_PLUGINS = ("jax_plugins.xla_cuda13", "jax_plugins.xla_cuda12")
_EXTENSIONS = ("jax_cuda13_plugin.cuda_plugin_extension", "jax_cuda12_plugin.cuda_plugin_extension")
# In dependency order; an installation has only some of them.
_LIBRARIES = (
    ("nvidia.cu13", ("libcudart.so.13", "libnvrtc.so.13", "libcublasLt.so.13", "libcublas.so.13")),
    ("nvidia.cu13", ("libcupti.so.13", "libcusparse.so.12", "libcusolver.so.12", "libcufft.so.12")),
    ("nvidia.cuda_runtime", ("libcudart.so.12",)),
    ("nvidia.cuda_nvrtc", ("libnvrtc.so.12",)),
    ("nvidia.cublas", ("libcublasLt.so.12", "libcublas.so.12")),
    ("nvidia.cuda_cupti", ("libcupti.so.12",)),
    ("nvidia.cusparse", ("libcusparse.so.12",)),
    ("nvidia.cusolver", ("libcusolver.so.11",)),
    ("nvidia.cufft", ("libcufft.so.11",)),
    ("nvidia.nccl", ("libnccl.so.2",)),
    ("nvidia.nvshmem", ("libnvshmem_host.so.3",)),
    ("nvidia.cudnn", ("libcudnn.so.9",)),
)


def make_cuda_client() -> Any:
    """Returns the client.

    Raises:
      UnsupportedError: there is no plug-in, or no GPU.
    """
    library = _library()
    if library is None:
        raise UnsupportedError(
            "XLA's CUDA plug-in is missing: check `nvidia-smi` and run pip install "
            f"'jax[cuda13]=={WRITTEN_FOR}'"
        )
    _load_libraries()
    try:
        if not xla_client.pjrt_plugin_loaded("cuda"):
            _register_custom_calls(xla_client.load_pjrt_plugin_dynamically("cuda", str(library)))
        if not xla_client.pjrt_plugin_initialized("cuda"):
            xla_client.initialize_pjrt_plugin("cuda")
        options = xla_client.generate_pjrt_gpu_plugin_options()
        return xla_client.make_c_api_client("cuda", options)
    except (XlaError, RuntimeError, OSError) as error:
        raise UnsupportedError(
            f"XLA's CUDA plug-in finds no GPU ({str(error).splitlines()[0]}): check `nvidia-smi`"
        ) from error


def _library() -> Path | None:
    for name in _PLUGINS:
        with contextlib.suppress(ModuleNotFoundError):
            spec = importlib.util.find_spec(name)
            for folder in (spec and spec.submodule_search_locations) or ():
                library = Path(folder) / "xla_cuda_plugin.so"
                if library.exists():
                    return library
    return None


def _load_libraries() -> None:
    """Loads the libraries of NVIDIA's packages, so that the plug-in finds them.

    Others may be installed in the system; the plug-in reports missing ones.
    """
    for name, libraries in _LIBRARIES:
        with contextlib.suppress(ImportError):
            folder = Path(importlib.import_module(name).__path__[0])
            for library in libraries:
                with contextlib.suppress(OSError):
                    ctypes.CDLL(str(folder / "lib" / library))


def _register_custom_calls(c_api: Any) -> None:
    """Registers the kernels that a program from JAX may call by name."""
    for name in _EXTENSIONS:
        with contextlib.suppress(ImportError):
            extension = importlib.import_module(name)
            xla_client.register_custom_type_handler(
                "CUDA", functools.partial(extension.register_custom_type, c_api)
            )
            xla_client.register_custom_call_handler(
                "CUDA", functools.partial(extension.register_custom_call_target, c_api)
            )
            for type_name, value in extension.ffi_types().items():
                xla_client.register_custom_type(type_name, value, platform="CUDA")
            for target, value in extension.ffi_handlers().items():
                xla_client.register_custom_call_target(
                    target, value, platform="CUDA", api_version=1
                )
            return
