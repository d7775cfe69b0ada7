"""Facts about jaxlib executables from XLA, whichever package compiled them."""

import contextlib
import hashlib
from typing import Any

from comparative_benchmark.backends.api import BackendFacts
from comparative_benchmark.backends.host_settings import HostSettings, pool_size

try:
    from jaxlib._hlo import HloPrintOptions
except ImportError:  # jaxlib has moved it before, and offers no public name for it
    HloPrintOptions = None

# XLA's name for the threads of its CPU pool.
POOL = "tf_XLAEigen"
_SIZES = ("argument_size", "output_size", "temp_size", "generated_code_size")
# Raised for unavailable values; `jaxlib`'s own error is a RuntimeError.
_NOT_TOLD = (RuntimeError, NotImplementedError)


def host_settings() -> HostSettings:
    """Returns the size of XLA's thread pool, which shows only in the names of its threads."""
    return HostSettings(threads=pool_size(POOL), threads_told_by=f"threads named {POOL}")


def describe(loaded: Any, facts: BackendFacts) -> None:
    """Records costs, memory, identity and size of a `LoadedExecutable`, if XLA knows them."""
    with contextlib.suppress(*_NOT_TOLD):
        cost = loaded.cost_analysis() or {}
        cost = cost[0] if isinstance(cost, list) else cost
        # XLA returns negative values if it cannot count the cost, as for a custom call.
        told = {name: value for name, value in cost.items() if value >= 0}
        facts.flops, facts.bytes_accessed = told.get("flops"), told.get("bytes accessed")
    with contextlib.suppress(*_NOT_TOLD):
        memory = loaded.get_compiled_memory_stats()
        facts.notes["memory_analysis"] = {
            name: getattr(memory, f"{name}_in_bytes") for name in _SIZES
        }
    facts.artifact_sha256 = fingerprint(loaded)
    # The size of the code alone is not used: XLA reports 0 for it on the CPU.
    serialized = serialize(loaded)
    facts.artifact_size_bytes = None if serialized is None else len(serialized)


def optimized_hlo(loaded: Any, *, metadata: bool = False) -> str:
    """Returns the optimised program as HLO text, with all constants.

    Args:
      loaded: the executable.
      metadata: whether to include source locations, which differ between a newly compiled
        executable and the same one from a cache.
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

    It includes backend configurations and constants, which the compiler chose; XLA's own
    fingerprint format leaves these out.
    """
    return hashlib.sha256(optimized_hlo(loaded).encode()).hexdigest()


def serialize(loaded: Any) -> bytes | None:
    """Returns the executable in the form that caches store; None if XLA cannot serialise it."""
    with contextlib.suppress(*_NOT_TOLD):
        serialized: bytes = loaded.serialize()
        return serialized
    return None
