"""The worker's side of measuring prefill and decode apart.

Each is timed as a program of its own, dispatched and waited for, as a server does that hands out
tokens one by one. Nothing is subtracted: the time of a whole generation less that of its prefill
would be a guess at what a compiler made of the two together.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from comparative_benchmark.backends.api import Backend, GenerationParts
from comparative_benchmark.backends.compiled_calls import CompiledCalls
from comparative_benchmark.worker import sampling
from comparative_benchmark.worker.compiled_runs import CompiledRuns
from openxla.benchmark.artifacts import arrays


@attrs.frozen
class _Part:
    """One of the two, as `sampling.measure_block` takes it."""

    dispatch: Callable[[], Any]
    synchronize: Callable[[Any], None]
    compiled_calls: CompiledCalls | None


def run_through(parts: GenerationParts, directory: Path) -> list[dict[str, Any]]:
    """Generates once, part by part, and saves tokens and logits as a whole generation gives them.

    Returns:
      File name, shape and element type of each.
    """
    handle = parts.prefill()
    chosen = [parts.fetch(handle)]
    for _ in range(parts.steps):
        handle = parts.decode()
        parts.synchronize(handle)
        chosen.append(parts.fetch(handle))
    tokens, logits = (np.stack(values, axis=1) for values in zip(*chosen, strict=True))
    return arrays.save_all(directory, "output", [tokens, logits])


def measure(parts: GenerationParts, backend: Backend, iterations: int) -> dict[str, list[float]]:
    """Times so many prefills, and as many times all steps of decode; each once more beforehand.

    Returns:
      `prefill_ms`, one for each prefill; `decode_ms`, one for each step, which gives a token to
      every sequence of the batch.

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
    if not parts.steps:  # a single new token is that of the prefill
        return {"prefill_ms": prefill_ms, "decode_ms": []}
    block(parts.decode, parts.steps, warm_up=True)
    return {
        "prefill_ms": prefill_ms,
        "decode_ms": block(parts.decode, iterations * parts.steps),
    }
