"""numpy as a backend: fast to start, so that the harness can be tested many times."""

import os
import random
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
    HostSettings,
    UnsupportedError,
)
from comparative_benchmark.backends.generation_parts import FunctionParts, Step
from openxla.benchmark.models.shared_model import as_tuple


class NumpyBackend(Backend):
    """Calls `model.forward`."""

    _delay_s = 0.0
    _hits: int | None = None

    def load(self, model: Any, inputs: Sequence[Array]) -> None:
        if self.context.device.accelerator_type != "cpu":
            raise UnsupportedError(f"numpy does not run on {self.context.device.name}")
        self._model, self._inputs = model, inputs

    def compile(self) -> None:
        with self.context.phase("compile"):
            if hasattr(self._model, "compile"):
                self._model.compile()
            if "gambles" in self.context.options:
                self._choose()
            if "has-a-cache-elsewhere" in self.context.options:
                self._hits = 1

    def _choose(self) -> None:
        """Chooses one of two speeds, as autotuning may, and keeps the choice in its cache."""
        cache = Path(os.environ["CBS_TEST_CACHE_DIR"]) / "choice"
        self._hits = int(cache.exists())
        if not cache.exists():
            cache.write_text(str(random.SystemRandom().choice((1.0, 1.25))))
        self._delay_s = 1e-3 * float(cache.read_text())

    def dispatch(self) -> Any:
        until = time.perf_counter() + self._delay_s
        while time.perf_counter() < until:
            pass
        return self._model.forward(*self._inputs)

    def synchronize(self, outputs: Any) -> None:
        pass

    def fetch(self, outputs: Any) -> list[Any]:
        return list(as_tuple(outputs))

    def replace_inputs(self, inputs: Sequence[Array]) -> bool:
        for resident, value in zip(self._inputs, inputs, strict=True):
            np.copyto(resident, value)
        return True

    def facts(self) -> BackendFacts:
        facts = BackendFacts(weights="parameters", not_measurable=("trace", "lower"))
        facts.notes["cpus"] = sorted(os.sched_getaffinity(0))
        facts.cache_hits = self._hits
        return facts

    def host_settings(self) -> HostSettings:
        return HostSettings(threads=1, threads_told_by="it calls numpy")

    def generation_parts(self) -> GenerationParts:
        if self._model.fault == "no-parts":
            return super().generation_parts()
        return parts(self._model, *self._inputs)

    def profile(self, directory: Path, iterations: int) -> list[Path]:
        file = directory / "profile.txt"
        spent = []
        for _ in range(iterations):
            start = time.perf_counter_ns()
            self.synchronize(self.dispatch())
            spent.append(time.perf_counter_ns() - start)
        file.write_text("\n".join(map(str, spent)))
        return [file]


def parts(model: Any, prompt: Array) -> GenerationParts:
    """Calls `prefill` and `decode`."""

    def chosen(logits: Any, cache: Any) -> Step:
        return logits.argmax(axis=-1).astype(np.int32), logits, cache

    first = model.first_position(prompt)
    return FunctionParts(
        lambda: chosen(*model.prefill(prompt)),
        lambda *arguments: chosen(*model.decode(*arguments)),
        range(first, first + model.max_new_tokens - 1),
        wait=lambda _: None,
        to_host=np.asarray,
    )


def reference(model: Any, inputs: Sequence[Array]) -> tuple[list[Any], list[Any]]:
    """Truth in float64, reference as the model computes."""
    if hasattr(model, "in_float64"):
        return list(model.in_float64(*inputs)), list(as_tuple(model.forward(*inputs)))
    same_type = [np.asarray(value) for value in as_tuple(model.forward(*inputs))]
    wide = [value.astype(np.float64) for value in inputs]
    truth = as_tuple(model.forward(*wide))
    return [np.asarray(value, np.float64) for value in truth], same_type
