"""The identity of a program that XLA compiled."""

import hashlib
from typing import Any

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
