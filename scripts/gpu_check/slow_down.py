"""A backend that is slowed down by a known share; its own module, as workers import it.

A worker reads the share and the backend class to slow down from its environment.
"""

import os
import time
from collections.abc import Callable
from typing import Any, TypeVar

from comparative_benchmark.backends.api import BackendContext, load_object

SHARE_VARIABLE = "CBS_SLOW_DOWN_SHARE"
# `module:Class`
BASE_VARIABLE = "CBS_SLOW_DOWN_BASE"

_Result = TypeVar("_Result")
# In other processes than workers, the class is not used.
_Base: Any = load_object(
    os.environ.get(BASE_VARIABLE, "comparative_benchmark.backends.api:Backend")
)


class SlowedBackend(_Base):  # type: ignore[misc]  # the environment names the base
    """The backend class that the environment names, with each iteration prolonged."""

    def __init__(self, context: BackendContext) -> None:
        super().__init__(context)
        self._share = float(os.environ[SHARE_VARIABLE])

    def dispatch(self) -> Any:
        """Runs to completion, then spins."""
        return prolonged(self._complete, self._share)

    def _complete(self) -> Any:
        outputs = super().dispatch()
        self.synchronize(outputs)
        return outputs


def prolonged(
    call: Callable[[], _Result], share: float, clock_ns: Callable[[], int] = time.perf_counter_ns
) -> _Result:
    """Calls, then spins for `share` of the time that this call took.

    So the ratio of the latencies is 1 + share in each iteration, in every quantile and under any
    load. A fixed delay, for example 3 % of the minimum, would be less than 3 % of the median. A
    share of 0 costs the same clock readings.
    """
    start = clock_ns()
    result = call()
    finished = clock_ns()
    end = finished + share * (finished - start)
    while clock_ns() < end:
        pass
    return result
