"""The part of jaxlib that the suite uses, none of which is public.

jaxlib promises its interface to nobody but JAX, and to that only in step with it. The names come
from JAX: `jax._src.compiler` compiles with them, `jax._src.interpreters.pxla` puts arrays on
devices.
"""

from importlib.metadata import version

from comparative_benchmark.backends.api import UnsupportedError

WRITTEN_FOR = "0.10.2"


def differs(error: Exception) -> UnsupportedError:
    """Says what to do about a jaxlib that lacks a name, or takes other arguments."""
    return UnsupportedError(
        f"jaxlib {version('jaxlib')} lacks the private interface of {WRITTEN_FOR}, which this "
        f"backend needs ({error}): run pip install jax=={WRITTEN_FOR} jaxlib=={WRITTEN_FOR}"
    )


try:
    from jaxlib import _hlo as hlo
    from jaxlib import _jax as extension
    from jaxlib import _profiler as profiler
    from jaxlib import xla_client

    # What JAX raises as `jax.errors.JaxRuntimeError`.
    XlaError: type[Exception] = extension.JaxRuntimeError
except (ImportError, AttributeError) as error:
    raise differs(error) from error

__all__ = ["WRITTEN_FOR", "XlaError", "differs", "extension", "hlo", "profiler", "xla_client"]
