"""A backend that deceives in one way for each compiler: most have right outputs and false times."""

import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from cbs_test_plugin.backend import NumpyBackend
from comparative_benchmark.backend_api import Array, BackendInfo, CompilerInfo
from comparative_benchmark.worker import sampling
from openxla.benchmark.def_types import ModelFrameworkType
from openxla.benchmark.installation import root_dir

LIES = {
    "honest": "computes in dispatch, and waits",
    "in-fetch": "computes when its outputs are fetched",
    "in-a-thread": "computes in a thread, and does not wait for it",
    "kept": "keeps its outputs until its inputs are replaced",
    "by-content": "keeps the outputs of all inputs that it has seen",
    "before": "computes before the clock is read",
    "after": "computes when its outputs are freed",
    "in-replacement": "computes when its inputs are replaced",
    "first-input": "keeps its outputs, and refuses other inputs",
    "two-inputs": "keeps the outputs of all inputs that it has seen, and rejects a third one",
    "slow-clock": "replaces the worker's clock by one that is 100 times slower",
    "slow-clocks": "replaces the clock of CPU time, too",
    "reads-truth": "computes nothing, and copies the truth of its inputs from the artifact root",
    "writes-truth": "computes nothing, and makes its zeros the truth",
}
# Long compared with the harness's own work, and short compared with a test.
WORK_S = 0.02

BACKEND = BackendInfo(
    name="test_liars",
    implementation="cbs_test_plugin.liars:Liar",
    level="framework_level",
    modules={ModelFrameworkType.PYTORCH: ("numpy",)},
    install="nothing",
    compilers=tuple(CompilerInfo(name=name, description=text) for name, text in LIES.items()),
    packages={"cbs_test_plugin": "cbs-test-plugin"},
)


class Liar(NumpyBackend):
    """Works for 20 ms an iteration, somewhere."""

    def load(self, model: Any, inputs: Sequence[Array]) -> None:
        super().load(model, inputs)
        self._way = self.context.compiler
        self._kept: Any = None
        self._seen: dict[bytes, Any] = {}
        if self._way in ("slow-clock", "slow-clocks"):
            sampling._CLOCK = _slowed(sampling._CLOCK)
        if self._way == "writes-truth":
            self._replace_truth()
        if self._way == "slow-clocks":
            sampling._CPU_CLOCK = _slowed(sampling._CPU_CLOCK)

    def rewind(self) -> None:
        if self._way == "before":
            self._kept = self._compute()

    def dispatch(self) -> Any:
        if self._way == "in-fetch":
            return None
        if self._way == "before":
            return self._compute() if self._kept is None else self._kept
        if self._way == "after":
            outputs, self._kept = self._compute() if self._kept is None else self._kept, None
            return _Freed(outputs, self)
        if self._way == "in-a-thread":
            found: list[Any] = []
            thread = threading.Thread(target=self._compute_elsewhere, args=(found,))
            thread.start()
            return thread, found
        if self._way in ("kept", "in-replacement", "first-input"):
            if self._kept is None:
                self._kept = self._compute()
            return self._kept
        if self._way in ("by-content", "two-inputs"):
            key = b"".join(value.tobytes() for value in self._inputs)
            if key not in self._seen:
                self._seen[key] = self._compute()
            return self._seen[key]
        return self._compute()

    def fetch(self, outputs: Any) -> list[Any]:
        if self._way == "in-fetch":
            if self._kept is None:
                self._kept = self._compute()
            outputs = self._kept
        if self._way == "in-a-thread":
            thread, found = outputs
            thread.join()
            outputs = found[0]
        if self._way == "after":
            outputs = outputs.outputs
        return super().fetch(outputs)

    def replace_inputs(self, inputs: Sequence[Array]) -> bool:
        if self._way == "first-input":
            return False
        if self._way == "two-inputs" and len(self._seen) > 1:
            known = [b"".join(value.tobytes() for value in inputs) in self._seen]
            if not any(known):
                raise ValueError("these inputs are not sorted")
        self._kept = None
        replaced = super().replace_inputs(inputs)
        if self._way == "in-replacement":
            self._kept = self._compute()
        return replaced

    def _replace_truth(self) -> None:
        for path in (root_dir() / "workloads").glob("*/*t*/output_0.npy"):
            np.save(path, np.zeros_like(np.load(path)))

    def _truth(self) -> Array | None:
        """Returns the truth of the inputs, if this process can see it."""
        for path in (root_dir() / "workloads").glob("*/*inputs/input_0.npy"):
            truth = path.parents[1] / path.parent.name.replace("inputs", "truth") / "output_0.npy"
            if truth.exists() and np.array_equal(np.load(path), self._inputs[0]):
                return np.load(truth)
        return None

    def _compute(self) -> Any:
        until = time.perf_counter() + WORK_S
        while time.perf_counter() < until:
            pass
        outputs = self._model.forward(*self._inputs)
        if not self._way.endswith("-truth"):
            return outputs
        found = self._truth() if self._way == "reads-truth" else None
        return np.zeros_like(outputs) if found is None else found.astype(outputs.dtype)

    def _compute_elsewhere(self, found: list[Any]) -> None:
        time.sleep(WORK_S)  # without Python's lock, as native code would be
        found.append(self._model.forward(*self._inputs))


class _Freed:
    """Outputs that compute the next ones when they are freed."""

    def __init__(self, outputs: Any, backend: Liar) -> None:
        self.outputs, self._backend = outputs, backend

    def __del__(self) -> None:
        self._backend._kept = self._backend._compute()


def _slowed(clock: Any) -> Any:
    start = clock()
    return lambda: start + (clock() - start) // 100
