"""The worker's side of measuring the parts of a training step apart.

It follows the last of the steps themselves: to wait between the parts would make a step longer.
Each part is dispatched and waited for, in the order of a step.
"""

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from comparative_benchmark.backends.training import StepParts

# Caches, and lazily made state of the optimizer.
_WARM_UP = 2


def measure(parts: "StepParts", iterations: int) -> dict[str, Any]:
    """Times each part so many times.

    Returns:
      `how`, see `StepParts`; and `<part>_ms` of each, one for each iteration.
    """
    taken: dict[str, list[float]] = {f"{name}_ms": [] for name, _ in parts.parts}
    for index in range(_WARM_UP + iterations):
        for name, run in parts.parts:
            start = time.perf_counter_ns()
            handle = run()
            parts.wait(handle)
            elapsed_ms = (time.perf_counter_ns() - start) / 1e6
            if index >= _WARM_UP:
                taken[f"{name}_ms"].append(elapsed_ms)
    return {"how": parts.how, **taken}
