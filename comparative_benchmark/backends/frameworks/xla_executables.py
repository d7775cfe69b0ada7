"""What XLA tells of an executable of jaxlib's, whoever had it compiled."""

import contextlib
import hashlib
from typing import Any

from comparative_benchmark.backends.api import BackendFacts
from comparative_benchmark.backends.host_settings import HostSettings, pool_size

try:
    from jaxlib._hlo import HloPrintOptions
except ImportError:  # jaxlib has moved it before, and offers no public name for it
    HloPrintOptions = None

# How XLA calls the threads of its pool on the CPU.
POOL = "tf_XLAEigen"
_SIZES = ("argument_size", "output_size", "temp_size", "generated_code_size")
# `jaxlib`'s own error is one, too.
_NOT_TOLD = (RuntimeError, NotImplementedError)


def host_settings() -> HostSettings:
    """Returns how many threads XLA's pool has, which has no other way to tell."""
    return HostSettings(threads=pool_size(POOL), threads_told_by=f"threads named {POOL}")


def describe(loaded: Any, facts: BackendFacts) -> None:
    """Writes down costs, memory, identity and size of a `LoadedExecutable`, as far as XLA tells."""
    with contextlib.suppress(*_NOT_TOLD):
        cost = loaded.cost_analysis() or {}
        cost = cost[0] if isinstance(cost, list) else cost
        # Below zero is XLA's word for what it cannot count, as a custom call.
        told = {name: value for name, value in cost.items() if value >= 0}
        facts.flops, facts.bytes_accessed = told.get("flops"), told.get("bytes accessed")
    with contextlib.suppress(*_NOT_TOLD):
        memory = loaded.get_compiled_memory_stats()
        facts.notes["memory_analysis"] = {
            name: getattr(memory, f"{name}_in_bytes") for name in _SIZES
        }
    facts.artifact_sha256 = fingerprint(loaded)
    # Not the size of the code alone, which is 0 on the CPU: XLA does not count it there.
    serialized = serialize(loaded)
    facts.artifact_size_bytes = None if serialized is None else len(serialized)


def optimized_hlo(loaded: Any, *, metadata: bool = False) -> str:
    """Returns the optimised program as HLO text, with all constants.

    Args:
      loaded: the executable.
      metadata: with source locations, which differ between an executable that was compiled now
        and the same one out of a cache.
    """
    modules = loaded.hlo_modules()
    if HloPrintOptions is None:
        return "\n".join(module.to_string() for module in modules)
    options = HloPrintOptions()
    options.print_metadata = metadata
    options.print_large_constants = True
    return "\n".join(module.to_string(options) for module in modules)


def fingerprint(loaded: Any) -> str:
    """Returns the sha256 of the optimised HLO.

    With backend configurations and constants, which are what the compiler chose; XLA's own form
    for fingerprints leaves these out.
    """
    return hashlib.sha256(optimized_hlo(loaded).encode()).hexdigest()


def serialize(loaded: Any) -> bytes | None:
    """Returns the executable as a cache would keep it; None if XLA cannot do that."""
    with contextlib.suppress(*_NOT_TOLD):
        serialized: bytes = loaded.serialize()
        return serialized
    return None
