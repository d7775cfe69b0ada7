"""A slow-down of a known size, the same in every quantile and under any load."""

import time
from collections.abc import Callable
from typing import TypeVar

# Where a slowed worker finds its share, and the backend class that it slows, `module:Class`.
SHARE_VARIABLE = "CBS_SLOW_DOWN_SHARE"
BASE_VARIABLE = "CBS_SLOW_DOWN_BASE"

_Result = TypeVar("_Result")


def prolonged(
    call: Callable[[], _Result], share: float, clock_ns: Callable[[], int] = time.perf_counter_ns
) -> _Result:
    """Calls, then spins for `share` of the time that this very call took.

    So the ratio of the latencies is 1 + share for each single iteration. A slow-down of a fixed
    length, say 3 % of the minimum, would be less than 3 % of the median, and still less under load.
    A share of 0 costs the same readings of the clock.
    """
    start = clock_ns()
    result = call()
    finished = clock_ns()
    end = finished + share * (finished - start)
    while clock_ns() < end:
        pass
    return result
