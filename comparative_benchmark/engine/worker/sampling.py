"""The timed loop, kept minimal because everything in it adds to each sample."""

import gc
import itertools
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import attrs

from comparative_benchmark.analysis.machine import conditions
from comparative_benchmark.backends.api import Backend

# Enough for a median, without running a block of thousands of short iterations twice.
DEVICE_ITERATIONS = 20
# Bound before a model is imported, so that models cannot replace the clock in `time`.
_CLOCK, _CPU_CLOCK = time.perf_counter_ns, time.process_time_ns
_SLEEP = time.sleep
# Longer than threads of a program spin while waiting for work.
_PAUSE_S = 0.005


@attrs.frozen(kw_only=True)
class Block:
    """Samples of consecutive iterations, and the outputs of the last one.

    Attributes:
      latencies_ms: time from dispatch to completed outputs, by the host clock.
      dispatch_ms: the part of each latency until the call returned to the host.
      device_ms: times by the device clock, of further iterations right after these; fewer than the
        others, and empty without such a clock (see `with_device_times`).
      cpu_ms, wall_ms: CPU time of the process, and wall time, over the whole block.
      conditions: state of the machine during the block.
      compiled_calls, compilations: calls of compiled programs, and programs compiled, in each
        iteration; empty if the backend does not count them.
      outputs: the backend's handle of the outputs of the last timed iteration.
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
    """Something that can be timed: a backend or a part of its program."""

    def dispatch(self) -> Any:
        """Starts one execution and returns a handle of its outputs."""

    def synchronize(self, outputs: Any) -> None:
        """Waits until the outputs are complete."""


def measure_block(
    backend: Timed, iterations: int, *, threads: int = 1, gpu: bool = False, refresh: bool = False
) -> Block:
    """Runs iterations with the garbage collector disabled and returns the samples.

    The clock is `time.perf_counter_ns` (CLOCK_MONOTONIC). Lists are created before the loop, so
    that the loop itself allocates only numbers. The loop is the same for all backends.

    Args:
      backend: the backend or part to run.
      iterations: number of timed iterations.
      threads: number of threads of the computation.
      gpu: whether to record the conditions of the GPU.
      refresh: whether to run an untimed iteration first. It refills caches that were used meanwhile
        by others and by reading the machine's conditions.
    """
    dispatch, synchronize, clock = backend.dispatch, backend.synchronize, _CLOCK
    rewind = getattr(backend, "rewind", None)  # parts of a backend lack this method
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
            # Free the previous outputs before timing: this is not part of the iteration, and
            # programs that always write to the same memory would not pay for it.
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
    """Returns a block with device times; the same block if there is no device clock.

    They are measured on as many further iterations as the block has, up to `DEVICE_ITERATIONS`,
    because time stamps cost the host a little, and only on some backends. The handle remains that
    of the last timed iteration.
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
            # Only one set of outputs exists besides the kept one, as in the timed loop.
            del outputs
    return attrs.evolve(block, device_ms=timer.elapsed_ms(), outputs=kept)


def fresh_run_ms(backend: Backend) -> float:
    """Returns the time of one run including fetching its outputs, less that of fetching them again.

    This counts work that a backend defers until its outputs are fetched, but not copying them.
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
    """Returns the time of one run on the last inputs, after a pause.

    The outputs are not fetched, as in timed iterations. During the pause threads go to sleep, as
    they do while new inputs are generated.
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
    """Returns the smallest step between two consecutive readings of the clock.

    The clock cannot resolve shorter times; reading it takes about as long.
    """
    clock = _CLOCK
    times = [clock() for _ in range(readings)]
    return min(later - sooner for sooner, later in itertools.pairwise(times) if later > sooner)
