"""Times parts in the worker: prefill and decode, and the parts of a training step."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np

from comparative_benchmark.backends.api import Backend, GenerationParts
from comparative_benchmark.backends.compiled_calls import CompiledCalls
from comparative_benchmark.engine.worker import sampling
from comparative_benchmark.engine.worker.compiled_runs import CompiledRuns
from openxla.benchmark.artifacts import arrays


@attrs.frozen
class _Part:
    """Prefill or decode, in the form that `sampling.measure_block` expects."""

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
    return arrays.save_all(directory, "output", [tokens, logits])


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
        measured = sampling.measure_block(part, count, threads=context.threads, gpu=gpu)
        if not warm_up:
            CompiledRuns(backend.compiled_calls).require(measured, calls=1)
        return measured.latencies_ms

    block(parts.prefill, 1, warm_up=True)
    prefill_ms = block(parts.prefill, iterations)
    if not parts.steps:  # the only new token comes from the prefill
        return {"prefill_ms": prefill_ms, "decode_ms": []}
    block(parts.decode, parts.steps, warm_up=True)
    return {
        "prefill_ms": prefill_ms,
        "decode_ms": block(parts.decode, iterations * parts.steps),
    }


if TYPE_CHECKING:
    from comparative_benchmark.backends.training import StepParts

# Fills caches and initialises the optimizer's lazy state.
_WARM_UP = 2


def measure_step(parts: "StepParts", iterations: int) -> dict[str, Any]:
    """Times each part of a training step `iterations` times.

    Returns:
      `how`, see `StepParts`; and `<part>_ms` of each part, one value per iteration.
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
