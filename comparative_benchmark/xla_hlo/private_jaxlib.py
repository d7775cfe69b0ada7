"""The part of jaxlib that the suite uses, all of it private.

jaxlib supports its interface only for JAX, and only for a matching version. The names come from
JAX: `jax._src.compiler` compiles with them, `jax._src.interpreters.pxla` puts arrays on devices.
"""

from importlib.metadata import version

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
