"""Times iterations and parts of a program, and checks that the timed iterations ran compiled.

The timed loop is minimal because everything in it adds to each sample. The parts are prefill and
decode of a generation, and the parts of a training step.
"""

import gc
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import attrs
import numpy as np

from comparative_benchmark.analysis.machine import conditions
from comparative_benchmark.backends.api import Array, Backend, GenerationParts, UnsupportedError
from comparative_benchmark.backends.compiled_calls import CompiledCalls
from openxla.benchmark.artifacts import array_files

if TYPE_CHECKING:
    from comparative_benchmark.backends.model_protocols import StepParts

# Enough for a median, without running a block of thousands of short iterations twice.
DEVICE_ITERATIONS = 20
# Bound before a model is imported, so that models cannot replace the clock in `time`.
_CLOCK, _CPU_CLOCK = time.perf_counter_ns, time.process_time_ns
_SLEEP = time.sleep
# Longer than threads of a program spin while waiting for work.
_PAUSE_S = 0.005
# No copy of inputs is slower.
_MOST_NS_PER_COPY, _MOST_NS_PER_BYTE = 2_000_000, 5


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
    """Returns a block with device times; the same block without a device clock.

    They are measured on as many further iterations as the block has, up to `DEVICE_ITERATIONS`,
    because time stamps cost the host a little, and only on some backends. The handle remains that
    of the last timed iteration.
    """
    timer = backend.device_timer()
    if timer is None:
        return block
    iterations = min(len(block.latencies_ms), DEVICE_ITERATIONS)
    retained = backend.retain(block.outputs)
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
            # As in the timed loop, only one set of outputs exists in addition to the retained one.
            del outputs
    return attrs.evolve(block, device_ms=timer.elapsed_ms(), outputs=retained)


def fresh_run(
    backend: Backend,
    inputs: Sequence[Array],
    counted: AbstractContextManager[None] | None = None,
) -> tuple[Any, list[Any], float] | None:
    """Runs once on other inputs; returns the outputs, also on the host, and the time in ms.

    The time includes fetching the outputs, less a second fetch. This counts work that a backend
    defers until its outputs are fetched, but not copying them. The same is true for inputs.

    Args:
      backend: with a compiled program.
      inputs: inputs that it keeps afterwards.
      counted: context of the run.

    Returns:
      None if the backend cannot replace its inputs.
    """
    copied_ns = _MOST_NS_PER_COPY + sum(value.nbytes for value in inputs) * _MOST_NS_PER_BYTE
    with _collector_off():
        start = _CLOCK()
        if not backend.replace_inputs(inputs):
            return None
        start = min(start + copied_ns, _CLOCK())
        if (rewind := getattr(backend, "rewind", None)) is not None:
            rewind()
        with counted or nullcontext():
            outputs = backend.dispatch()
            backend.synchronize(outputs)
            outputs = backend.complete(outputs)
        backend.fetch(outputs)
        fetched = _CLOCK()
        values = backend.fetch(outputs)
        return outputs, list(values), max(2 * fetched - start - _CLOCK(), 0) / 1e6


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


class CompiledRuns:
    """Compares runs with the first verified run, which defines the number of calls per iteration.

    Args:
      counter: counter of the backend; None if the backend has no uncompiled fallback.
    """

    def __init__(self, counter: CompiledCalls | None) -> None:
        self._counter = counter
        self._calls_per_iteration = 1

    @contextmanager
    def first(self) -> Iterator[None]:
        """Checks the first verified run and records its number of calls.

        Raises:
          UnsupportedError: the run called no compiled program.
        """
        before = self._counter.calls if self._counter else 0
        with self.verified("the first run"):
            yield
        if self._counter:
            self._calls_per_iteration = self._counter.calls - before

    @contextmanager
    def verified(self, run: str, *, calls: int | None = None) -> Iterator[None]:
        """Checks a run whose outputs are verified.

        Args:
          run: name of the run for the message.
          calls: minimum number of calls; by default, as many as one iteration makes.

        Raises:
          UnsupportedError: the run called fewer compiled programs.
        """
        counter, expected = self._counter, calls or self._calls_per_iteration
        before = counter.calls if counter else 0
        yield
        if counter and (called := counter.calls - before) < expected:
            raise UnsupportedError(
                f"{_missed(counter, called, expected)} in {run}: {counter.fallback_reason()}"
            )

    def require(self, block: Block, calls: int | None = None) -> None:
        """Checks timed iterations.

        Args:
          block: the iterations with their numbers of calls.
          calls: minimum number per iteration; by default, as many as the first verified run made.

        Raises:
          UnsupportedError: an iteration called fewer compiled programs, or every iteration
            compiled.
        """
        counter, expected = self._counter, calls or self._calls_per_iteration
        if counter is None:
            return
        short = [count for count in block.compiled_calls if count < expected]
        iterations = len(block.compiled_calls)
        if short:
            raise UnsupportedError(
                f"{_missed(counter, max(short), expected)} in {len(short)} of {iterations} timed "
                f"iterations: {counter.fallback_reason()}"
            )
        if iterations and all(block.compilations):
            raise UnsupportedError(
                f"all {iterations} timed iterations recompiled the program: "
                f"{counter.recompile_reason()}"
            )


def _missed(counter: CompiledCalls, calls: int, expected: int) -> str:
    if not calls:
        return f"{counter.compiler}'s program was not called"
    return f"{counter.compiler}'s programs received {calls} of {expected} calls"


@attrs.frozen
class _Part:
    """Prefill or decode, in the form that `measure_block` expects."""

    dispatch: Callable[[], Any]
    synchronize: Callable[[Any], None]
    compiled_calls: CompiledCalls | None


def run_through(parts: GenerationParts, directory: Path) -> list[dict[str, Any]]:
    """Generates once, part by part, and saves tokens and logits like a whole generation.

    Returns:
      File name, shape and element type of each file.
    """
    handle = parts.prefill()
    chosen = [parts.fetch(handle)]
    for _ in range(parts.steps):
        handle = parts.decode()
        parts.synchronize(handle)
        chosen.append(parts.fetch(handle))
    tokens, logits = (np.stack(values, axis=1) for values in zip(*chosen, strict=True))
    return array_files.save_all(directory, "output", [tokens, logits])


def measure_generation(
    parts: GenerationParts, backend: Backend, iterations: int
) -> dict[str, list[float]]:
    """Times prefill and the sequence of all decode steps, after one untimed run of each.

    Returns:
      `prefill_ms`, one value per prefill; `decode_ms`, one value per step, which yields one token
        for every sequence of the batch.

    Raises:
      UnsupportedError: a part of a compiled model ran uncompiled.
    """
    context = backend.context

    def block(dispatch: Callable[[], Any], count: int, *, warm_up: bool = False) -> list[float]:
        part = _Part(dispatch, parts.synchronize, backend.compiled_calls)
        gpu = context.device.accelerator_type != "cpu"
        measured = measure_block(part, count, threads=context.threads, gpu=gpu)
        if not warm_up:
            CompiledRuns(backend.compiled_calls).require(measured, calls=1)
        return measured.latencies_ms

    block(parts.prefill, 1, warm_up=True)
    prefill_ms = block(parts.prefill, iterations)
    if not parts.steps:  # the only new token comes from the prefill
        return {"prefill_ms": prefill_ms, "decode_ms": []}
    block(parts.decode, parts.steps, warm_up=True)
    return {"prefill_ms": prefill_ms, "decode_ms": block(parts.decode, iterations * parts.steps)}


# Fills caches and initialises the optimizer's lazy state.
_WARM_UP = 2


def measure_step(parts: "StepParts", iterations: int) -> dict[str, Any]:
    """Times each part of a training step `iterations` times.

    Returns:
      `how`, see `StepParts`; and `<part>_ms` of each part, one value per iteration.
    """
    taken: dict[str, list[float]] = {f"{name}_ms": [] for name, _ in parts.parts}
    handle: Any = None
    with _collector_off():
        for index in range(_WARM_UP + iterations):
            for name, run in parts.parts:
                handle = None  # freed before timing starts
                start = _CLOCK()
                handle = run()
                parts.wait(handle)
                elapsed_ms = (_CLOCK() - start) / 1e6
                if index >= _WARM_UP:
                    taken[f"{name}_ms"].append(elapsed_ms)
    return {"how": parts.how, **taken}
