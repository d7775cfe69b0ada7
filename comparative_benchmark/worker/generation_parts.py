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
from comparative_benchmark.worker import sampling
from openxla.benchmark.artifacts import arrays


@attrs.frozen
class _Part:
    """One of the two, as `sampling.measure_block` takes it."""

    dispatch: Callable[[], Any]
    synchronize: Callable[[Any], None]


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
    """
    context = backend.context

    def block(dispatch: Callable[[], Any], count: int) -> list[float]:
        part = _Part(dispatch, parts.synchronize)
        gpu = context.device.accelerator_type != "cpu"
        return sampling.measure_block(part, count, threads=context.threads, gpu=gpu).latencies_ms

    block(parts.prefill, 1)
    prefill_ms = block(parts.prefill, iterations)
    if not parts.steps:  # a single new token is that of the prefill
        return {"prefill_ms": prefill_ms, "decode_ms": []}
    block(parts.decode, parts.steps)
    return {
        "prefill_ms": prefill_ms,
        "decode_ms": block(parts.decode, iterations * parts.steps),
    }
