"""The timed loop. Everything in it is paid by every sample, so there is little in it."""

import gc
import itertools
import time
from typing import Any, Protocol

import attrs

from comparative_benchmark.backend_api import DeviceTimer
from comparative_benchmark.harness import conditions


@attrs.frozen(kw_only=True)
class Block:
    """Samples of consecutive iterations, and the outputs of the last one.

    Attributes:
      latencies_ms: start of dispatch to completed outputs, host clock.
      dispatch_ms: the part of it until the call returned to the host.
      device_ms: the same iterations by the device's own clock; empty where there is none.
      cpu_ms, wall_ms: CPU time of the process, and wall time, over the whole block.
      conditions: what the machine did meanwhile.
      outputs: the backend's handle.
    """

    latencies_ms: list[float]
    dispatch_ms: list[float]
    device_ms: list[float]
    cpu_ms: float
    wall_ms: float
    conditions: conditions.Conditions
    outputs: Any


class Timed(Protocol):
    """What can be timed: a backend, or a part of what it runs."""

    def dispatch(self) -> Any:
        """Starts one execution and returns a handle on its outputs."""

    def synchronize(self, outputs: Any) -> None:
        """Waits for outputs."""

    def device_timer(self) -> DeviceTimer | None:
        """Returns a timer that runs on the device itself, where there is one."""


def measure_block(backend: Timed, iterations: int, *, threads: int = 1, gpu: bool = False) -> Block:
    """Runs a number of iterations, garbage collector off, and returns the samples.

    The clock is `time.perf_counter_ns` (CLOCK_MONOTONIC). Lists are made before the loop, so that
    the loop itself allocates nothing but numbers.
    """
    dispatch, synchronize, clock = backend.dispatch, backend.synchronize, time.perf_counter_ns
    started, dispatched, finished = ([0] * iterations for _ in range(3))
    timer = backend.device_timer()
    outputs: Any = None
    collecting = gc.isenabled()
    gc.disable()
    before = conditions.take(gpu=gpu)
    cpu, wall = time.process_time_ns(), clock()
    try:
        if timer is None:
            for index in range(iterations):
                started[index] = clock()
                outputs = dispatch()
                dispatched[index] = clock()
                synchronize(outputs)
                finished[index] = clock()
        else:
            for index in range(iterations):
                started[index] = clock()
                timer.start()
                outputs = dispatch()
                timer.stop()
                dispatched[index] = clock()
                synchronize(outputs)
                finished[index] = clock()
    finally:
        cpu, wall = time.process_time_ns() - cpu, clock() - wall
        after = conditions.take(gpu=gpu)
        if collecting:
            gc.enable()
    return Block(
        latencies_ms=[(end - start) / 1e6 for start, end in zip(started, finished)],
        dispatch_ms=[(end - start) / 1e6 for start, end in zip(started, dispatched)],
        device_ms=timer.elapsed_ms() if timer else [],
        cpu_ms=cpu / 1e6,
        wall_ms=wall / 1e6,
        conditions=conditions.between(
            before, after, own_cpu_ms=cpu / 1e6, wall_ms=wall / 1e6, threads=threads
        ),
        outputs=outputs,
    )


def timer_resolution_ns(readings: int = 1000) -> int:
    """Returns the smallest step that two readings of the clock in a row were apart.

    What is shorter the clock can not see; reading it costs about as much.
    """
    clock = time.perf_counter_ns
    times = [clock() for _ in range(readings)]
    return min(later - sooner for sooner, later in itertools.pairwise(times) if later > sooner)
