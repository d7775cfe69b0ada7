"""Times an asynchronous call on a warm GPU."""

import math
import os
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import attrs

from comparative_benchmark.analysis.machine import gpu_clocks

# Calls are asynchronous: a reading covers so many that waiting for the last one is negligible.
_READING_S, _MOST_CALLS = 0.02, 4096
# An idle GPU has low clocks, and takes a while to reach sustained ones.
_WARM_UP_S = 0.3
_READINGS_S, _FEWEST_READINGS = 0.6, 3


@attrs.frozen(kw_only=True)
class Timing:
    """The time of a call, and the clock of the GPU meanwhile.

    Attributes:
      seconds: median of the faster half of the readings. Slow ones were disturbed; the fastest one
        may have had a clock that the GPU cannot sustain.
    """

    seconds: float
    sm_mhz: int | None
    held_back_by: tuple[str, ...] | None


def time_calls(call: Callable[[], Any], wait: Callable[[Any], None]) -> Timing:
    """Returns the time of a call on a warm device.

    Args:
      call: starts the work and returns its result, which need not be complete.
      wait: waits until it is complete.
    """
    # the first call loads the driver's library, which takes longer than a reading
    gpu_clocks.read()
    wait(call())  # compiles, chooses an algorithm, allocates memory
    calls, spent_s, fastest_s = 1, 0.0, math.inf
    while spent_s < _WARM_UP_S:
        seconds = _reading(call, wait, calls)
        spent_s += seconds
        # By the fastest so far: a disturbed reading would make all others too short.
        fastest_s = min(fastest_s, seconds / calls)
        calls = max(1, min(math.ceil(_READING_S / fastest_s), _MOST_CALLS))
    readings: list[float] = []
    while len(readings) < _FEWEST_READINGS or sum(readings) < _READINGS_S:
        readings.append(_reading(call, wait, calls))
    readings.sort()
    clocks = _clocks_during(call, wait, calls)
    return Timing(
        seconds=statistics.median(readings[: (len(readings) + 1) // 2]) / calls,
        sm_mhz=clocks.sm_mhz if clocks else None,
        held_back_by=clocks.held_back_by if clocks else None,
    )


def clocks_of_first(
    clocks: Sequence[gpu_clocks.GpuClocks], visible: str | None
) -> gpu_clocks.GpuClocks | None:
    """Returns the clocks of the first GPU that a process sees; None if unknown.

    Args:
      clocks: clocks of all GPUs.
      visible: value of `CUDA_VISIBLE_DEVICES`; None if it is not set.
    """
    if len(clocks) == 1:
        return clocks[0]
    first = "0" if visible is None else visible.split(",")[0].strip()
    return next((one for one in clocks if str(one.index) == first), None)


def _reading(call: Callable[[], Any], wait: Callable[[Any], None], calls: int) -> float:
    started, result = time.perf_counter(), None
    for _ in range(calls):
        result = call()
    wait(result)
    return time.perf_counter() - started


def _clocks_during(
    call: Callable[[], Any], wait: Callable[[Any], None], calls: int
) -> gpu_clocks.GpuClocks | None:
    """Returns the clocks while the calls run: an idle GPU has other clocks."""
    result = None
    for _ in range(calls):
        result = call()
    clocks = gpu_clocks.read()
    wait(result)
    return clocks_of_first(clocks, os.environ.get("CUDA_VISIBLE_DEVICES"))
