"""A search for the batch size that gives most, where a benchmark leaves it open.

milabench's sizer extrapolates memory from runs on other machines; here sizes are tried.
"""

import json
from collections.abc import Callable

from comparative_benchmark.packages.milabench.config import Bench

_LARGEST_FACTOR = 256
# Less is noise, and costs memory.
_LEAST_GAIN = 1.02


def is_automatic(bench: Bench) -> bool:
    """Tells whether a benchmark says `auto_batch(...)` somewhere."""
    return "auto_batch(" in json.dumps(bench.config, default=str)


def best_factor(rate: Callable[[int], float | None]) -> int:
    """Returns by what to multiply the batch size: powers of two are tried while they gain 2 %.

    It fails where a rate falls at one size and rises again at a larger one.

    Args:
      rate: runs the benchmark with a factor; None where that fails, e.g. for lack of memory.
    """
    factor, best = 1, rate(1)
    if best is None:
        return 1
    while 2 * factor <= _LARGEST_FACTOR:
        found = rate(2 * factor)
        if found is None or found < best * _LEAST_GAIN:
            break
        factor, best = 2 * factor, found
    return factor
