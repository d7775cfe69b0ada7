"""numpy as a backend: fast to start, so that the harness can be tested many times."""

import os
import random
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from comparative_benchmark.backend_api import (
    Array,
    Backend,
    BackendFacts,
    GenerationParts,
    HostSettings,
    OutputRule,
    UnsupportedError,
)
from comparative_benchmark.backends.api import ALLOCATED_ONLY
from comparative_benchmark.backends.model_protocols import FunctionParts, Step
from comparative_benchmark.backends.operator_profile import Operator, OperatorProfile, write
from comparative_benchmark.machine import conditions
from comparative_benchmark.machine.gpu_clocks import GpuClocks
from openxla.benchmark.models.shared_model import as_tuple


class NumpyBackend(Backend):
    """Calls `model.forward`."""

    _delay_s = 0.0
    _resumed = 0
    _hits: int | None = None

    def load(self, model: Any, inputs: Sequence[Array]) -> None:
        if self.context.device.accelerator_type != "cpu":
            raise UnsupportedError(f"numpy does not run on {self.context.device.name}")
        self._model, self._inputs = model, inputs
        if {"throttles", "tires"} & set(self.context.options):
            signal.signal(signal.SIGCONT, self._note_block)
        if "throttles" in self.context.options:
            self._take, conditions.take = conditions.take, self._with_a_gpu

    def compile(self) -> None:
        with self.context.phase("compile"):
            if hasattr(self._model, "compile"):
                self._model.compile()
            if {"gambles", "gambles-too"} & set(self.context.options):
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
        tired = "tires" in self.context.options and self._resumed > 5
        until = time.perf_counter() + self._delay_s + 1e-3 * (tired or self._throttled)
        while time.perf_counter() < until:
            pass
        return self._model.forward(*self._inputs)

    def _note_block(self, *_: Any) -> None:
        """Counts blocks; between two blocks, rivals are measured and this process is stopped."""
        self._resumed += 1

    @property
    def _throttled(self) -> bool:
        """Whether the GPU that it pretends to have is slow, which happens in every fifth block."""
        return "throttles" in self.context.options and self._resumed % 5 == 2

    def _with_a_gpu(self, **keywords: Any) -> conditions.Snapshot:
        mhz = 1200 if self._throttled else 1980
        gpu = GpuClocks(index=0, sm_mhz=mhz, held_back_by=(), used=True, foreign_pids=())
        return attrs.evolve(self._take(**keywords), gpus=(gpu,))

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

    def output_rule(self) -> OutputRule:
        return OutputRule(modes=("allocated",), reason=ALLOCATED_ONLY)

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
        own_us = sum(spent) / iterations / 1e3
        forward = Operator(name="forward", does="matmul", us=max(own_us - self._delay_s * 1e6, 0.0))
        delay = Operator(name="delay", does="runtime: it waits", us=self._delay_s * 1e6)
        found = OperatorProfile(
            stack=f"numpy {np.__version__}", iterations=iterations, operators=(forward, delay)
        )
        return [file, write(found, directory)]


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
