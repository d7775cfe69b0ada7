"""The identity of a program that XLA compiled."""

import hashlib
from typing import Any

try:
    from jaxlib._hlo import HloPrintOptions
except ImportError:  # jaxlib has moved it before, and offers no public name for it
    HloPrintOptions = None


def fingerprint(compiled: Any) -> str | None:
    """Returns the sha256 of a compiled program's optimised HLO; None if there is no text of it.

    In XLA's own form for fingerprints: without names and source locations, which differ between an
    executable that was compiled now and the same one out of the cache.
    """
    options = None if HloPrintOptions is None else HloPrintOptions.fingerprint()
    executable = compiled.runtime_executable()
    if options is None or executable is None:
        text = compiled.as_text() or ""
    else:
        text = "\n".join(module.to_string(options) for module in executable.hlo_modules())
    return hashlib.sha256(text.encode()).hexdigest() if text else None
