"""The timed loop. Everything in it is paid by every sample, so there is little in it."""

import gc
import itertools
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import attrs

from comparative_benchmark.analysis.machine import conditions
from comparative_benchmark.backends.api import Backend

# Enough for a median; a block of thousands of short iterations is not run twice.
DEVICE_ITERATIONS = 20
# Taken before a model is imported: one that puts its own into `time` is not timed by it.
_CLOCK, _CPU_CLOCK = time.perf_counter_ns, time.process_time_ns
_SLEEP = time.sleep
# Longer than threads of a program spin while they wait for work.
_PAUSE_S = 0.005


@attrs.frozen(kw_only=True)
class Block:
    """Samples of consecutive iterations, and the outputs of the last one.

    Attributes:
      latencies_ms: start of dispatch to completed outputs, host clock.
      dispatch_ms: the part of it until the call returned to the host.
      device_ms: of further iterations right after these, by the device's own clock; fewer than the
        others, and none without such a clock (see `with_device_times`).
      cpu_ms, wall_ms: CPU time of the process, and wall time, over the whole block.
      conditions: what the machine did meanwhile.
      compiled_calls, compilations: calls of compiled programs, and programs compiled, in each
        iteration; empty if the backend does not count them.
      outputs: the backend's handle on the outputs of the last timed iteration.
    """

    latencies_ms: list[float]
    dispatch_ms: list[float]
    device_ms: list[float]
    cpu_ms: float
    wall_ms: float
    conditions: conditions.Conditions
    outputs: Any
    compiled_calls: list[int] = attrs.field(factory=list)
    compilations: list[int] = attrs.field(factory=list)


class Timed(Protocol):
    """What can be timed: a backend, or a part of what it runs."""

    def dispatch(self) -> Any:
        """Starts one execution and returns a handle on its outputs."""

    def synchronize(self, outputs: Any) -> None:
        """Waits for outputs."""


def measure_block(
    backend: Timed, iterations: int, *, threads: int = 1, gpu: bool = False, refresh: bool = False
) -> Block:
    """Runs a number of iterations, garbage collector off, and returns the samples.

    The clock is `time.perf_counter_ns` (CLOCK_MONOTONIC). Lists are made before the loop, so that
    the loop itself allocates nothing but numbers. It is the same for every backend.

    Args:
      backend: what is run.
      iterations: how many are timed.
      threads: that it computes with.
      gpu: whether its conditions are those of a GPU, too.
      refresh: whether an iteration that is not timed goes before them. It fills the caches again
        that others, and the reading of the machine's conditions, have used meanwhile.
    """
    dispatch, synchronize, clock = backend.dispatch, backend.synchronize, _CLOCK
    rewind = getattr(backend, "rewind", None)  # parts of a backend have none
    counter = getattr(backend, "compiled_calls", None)
    calls, compilations = ([0] * (iterations + 1) if counter else [] for _ in range(2))
    started, dispatched, finished = ([0] * iterations for _ in range(3))
    outputs: Any = None
    with _collector_off():
        before = conditions.take(gpu=gpu)
        if refresh:
            synchronize(dispatch())
        if counter is not None:
            calls[0], compilations[0] = counter.calls, counter.compilations
        cpu, wall = _CPU_CLOCK(), clock()
        for index in range(iterations):
            # Those of the iteration before: freeing them is no part of this one. A program that
            # writes to the same memory each time would not pay for it either.
            outputs = None
            if rewind is not None:
                rewind()
            started[index] = clock()
            outputs = dispatch()
            dispatched[index] = clock()
            synchronize(outputs)
            finished[index] = clock()
            if counter is not None:
                calls[index + 1], compilations[index + 1] = counter.calls, counter.compilations
        cpu, wall = _CPU_CLOCK() - cpu, clock() - wall
        after = conditions.take(gpu=gpu)
    return Block(
        latencies_ms=[(end - start) / 1e6 for start, end in zip(started, finished)],
        dispatch_ms=[(end - start) / 1e6 for start, end in zip(started, dispatched)],
        device_ms=[],
        cpu_ms=cpu / 1e6,
        wall_ms=wall / 1e6,
        conditions=conditions.between(
            before, after, own_cpu_ms=cpu / 1e6, wall_ms=wall / 1e6, threads=threads
        ),
        outputs=outputs,
        compiled_calls=[after - before for before, after in itertools.pairwise(calls)],
        compilations=[after - before for before, after in itertools.pairwise(compilations)],
    )


def with_device_times(backend: Backend, block: Block) -> Block:
    """Returns a block with times of the device's own clock; the same block where there is none.

    They are those of further iterations, as many as the block has, up to `DEVICE_ITERATIONS`: time
    stamps cost the host a little, which only some backends would pay. The handle is still that of
    the last timed iteration.
    """
    timer = backend.device_timer()
    if timer is None:
        return block
    iterations = min(len(block.latencies_ms), DEVICE_ITERATIONS)
    kept = backend.retain(block.outputs)
    timer.reserve(iterations)
    rewind = getattr(backend, "rewind", None)
    with _collector_off():
        for _ in range(iterations):
            if rewind is not None:
                rewind()
            timer.start()
            outputs = backend.dispatch()
            timer.stop()
            backend.synchronize(outputs)
            # Beside the kept ones there need be room for one set of outputs, as in the timed loop.
            del outputs
    return attrs.evolve(block, device_ms=timer.elapsed_ms(), outputs=kept)


def fresh_run_ms(backend: Backend) -> float:
    """Returns the time of one run whose outputs are fetched, less the time of fetching them again.

    Work that a backend leaves until its outputs are fetched counts; copying them does not.
    """
    if (rewind := getattr(backend, "rewind", None)) is not None:
        rewind()
    with _collector_off():
        start = _CLOCK()
        outputs = backend.dispatch()
        backend.synchronize(outputs)
        outputs = backend.complete(outputs)
        backend.fetch(outputs)
        fetched = _CLOCK()
        backend.fetch(outputs)
        return max(2 * fetched - start - _CLOCK(), 0) / 1e6


def seen_run_ms(backend: Backend) -> float:
    """Returns the time of one run on the inputs of the last one, after a pause.

    The outputs are not fetched, as in timed iterations. In the pause, threads go to sleep as they
    do while new inputs are made.
    """
    if (rewind := getattr(backend, "rewind", None)) is not None:
        rewind()
    _SLEEP(_PAUSE_S)
    with _collector_off():
        start = _CLOCK()
        outputs = backend.dispatch()
        backend.synchronize(outputs)
        end = _CLOCK()
    backend.complete(outputs)
    return (end - start) / 1e6


@contextmanager
def _collector_off() -> Iterator[None]:
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def timer_resolution_ns(readings: int = 1000) -> int:
    """Returns the smallest step that two readings of the clock in a row were apart.

    What is shorter the clock cannot see; reading it costs about as much.
    """
    clock = _CLOCK
    times = [clock() for _ in range(readings)]
    return min(later - sooner for sooner, later in itertools.pairwise(times) if later > sooner)
