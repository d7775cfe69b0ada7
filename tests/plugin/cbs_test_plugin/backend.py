"""numpy as a backend: fast to start, so that the harness can be tested many times."""

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from comparative_benchmark.backend_api import (
    Array,
    Backend,
    BackendFacts,
    GenerationParts,
    UnsupportedError,
)
from openxla.benchmark.models.shared_model import as_tuple


class NumpyBackend(Backend):
    """Calls `model.forward`."""

    def load(self, model: Any, inputs: Sequence[Array]) -> None:
        if self.context.device.accelerator_type != "cpu":
            raise UnsupportedError(f"numpy does not run on {self.context.device.name}")
        self._model, self._inputs = model, inputs

    def compile(self) -> None:
        with self.context.phase("compile"):
            if hasattr(self._model, "compile"):
                self._model.compile()

    def dispatch(self) -> Any:
        return self._model.forward(*self._inputs)

    def synchronize(self, outputs: Any) -> None:
        pass

    def fetch(self, outputs: Any) -> list[Any]:
        return list(as_tuple(outputs))

    def facts(self) -> BackendFacts:
        facts = BackendFacts(weights="parameters", not_measurable=("trace", "lower"))
        facts.notes["cpus"] = sorted(os.sched_getaffinity(0))
        return facts

    def generation_parts(self) -> GenerationParts:
        if self._model.fault == "no-parts":
            return super().generation_parts()
        return NumpyParts(self._model, *self._inputs)

    def profile(self, directory: Path, iterations: int) -> list[Path]:
        file = directory / "profile.txt"
        spent = []
        for _ in range(iterations):
            start = time.perf_counter_ns()
            self.synchronize(self.dispatch())
            spent.append(time.perf_counter_ns() - start)
        file.write_text("\n".join(map(str, spent)))
        return [file]


class NumpyParts(GenerationParts):
    """Calls `prefill` and `decode`."""

    def __init__(self, model: Any, prompt: Array) -> None:
        self.steps = model.max_new_tokens - 1
        self._model, self._prompt = model, prompt
        self._next = 0
        self._chosen: Any = None
        self._cache: Any = None

    def prefill(self) -> Any:
        self._next = 0
        logits, self._cache = self._model.prefill(self._prompt)
        return self._choose(logits)

    def decode(self) -> Any:
        position = self._model.first_position(self._prompt) + self._next % self.steps
        self._next += 1
        logits, self._cache = self._model.decode(self._chosen, position, self._cache)
        return self._choose(logits)

    def synchronize(self, handle: Any) -> None:
        pass

    def fetch(self, handle: Any) -> Any:
        return handle

    def _choose(self, logits: Any) -> Any:
        self._chosen = logits.argmax(axis=-1).astype(np.int32)
        return self._chosen, logits


def reference(model: Any, inputs: Sequence[Array]) -> tuple[list[Any], list[Any]]:
    """Truth in float64, reference as the model computes."""
    if hasattr(model, "in_float64"):
        return list(model.in_float64(*inputs)), list(as_tuple(model.forward(*inputs)))
    same_type = [np.asarray(value) for value in as_tuple(model.forward(*inputs))]
    wide = [value.astype(np.float64) for value in inputs]
    truth = as_tuple(model.forward(*wide))
    return [np.asarray(value, np.float64) for value in truth], same_type
