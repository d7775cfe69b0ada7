"""The identity of a program that XLA compiled."""

import contextlib
import hashlib
from typing import Any

import jax

try:
    from jaxlib._hlo import HloPrintOptions
except ImportError:  # jaxlib has moved it before, and offers no public name for it
    HloPrintOptions = None


def fingerprint(compiled: Any) -> str | None:
    """Returns the sha256 of a compiled program's optimised HLO; None if there is no text of it.

    Without metadata: source locations differ between an executable that was compiled now and the
    same one out of the cache. With backend configurations and constants, which are what the
    compiler chose; XLA's own form for fingerprints leaves these out.
    """
    executable = compiled.runtime_executable()
    if HloPrintOptions is None or executable is None:
        text = compiled.as_text() or ""
    else:
        options = HloPrintOptions()
        options.print_metadata = False
        options.print_large_constants = True
        text = "\n".join(module.to_string(options) for module in executable.hlo_modules())
    return hashlib.sha256(text.encode()).hexdigest() if text else None


def size_bytes(compiled: Any) -> int | None:
    """Returns the size of the executable as JAX's cache would keep it; None if XLA can not tell.

    The size of the code alone is 0 on the CPU, where XLA does not count it.
    """
    with contextlib.suppress(NotImplementedError, jax.errors.JaxRuntimeError):
        return len(compiled.runtime_executable().serialize())
    return None
