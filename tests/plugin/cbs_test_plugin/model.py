"""The toy model, and all the ways in which a model can go wrong."""

import os
import subprocess
import sys
import time
from typing import Any

import numpy as np

from cbs_test_plugin.architecture import ARCHITECTURE
from openxla.benchmark.models import checkpoints, shared_model


class ToyModel(shared_model.ArchitectureModel):
    def __init__(self, **parameters: Any) -> None:
        self.set_architecture(ARCHITECTURE, parameters)
        weights = checkpoints.load_tensors(ARCHITECTURE, self.checkpoint)
        self.first, self.second = weights["first"], weights["second"]
        self.calls = 0

    def forward(self, x: Any) -> Any:
        self.calls += 1
        dtype = x.dtype
        return np.tanh(x @ self.first.astype(dtype)) @ self.second.astype(dtype)


class Segfault(ToyModel):
    def forward(self, x: Any) -> Any:
        import ctypes

        return ctypes.string_at(0)


class Hang(ToyModel):
    def forward(self, x: Any) -> Any:
        time.sleep(3600)


class Memory(ToyModel):
    def forward(self, x: Any) -> Any:
        hoard = []
        while True:
            hoard.append(np.ones(1 << 22))  # 32 MiB, touched


class NoMemory(ToyModel):
    def forward(self, x: Any) -> Any:
        return np.ones((1 << 30, 1 << 20))  # numpy refuses: MemoryError


class NotANumber(ToyModel):
    def forward(self, x: Any) -> Any:
        y = super().forward(x)
        y[0, 0] = np.nan
        return y


class Transposed(ToyModel):
    def forward(self, x: Any) -> Any:
        return np.ascontiguousarray(super().forward(x).T)


class Constant(ToyModel):
    def forward(self, x: Any) -> Any:
        return np.zeros_like(super().forward(x))


class LateFault(ToyModel):
    """Right at first, but wrong when it is timed, e.g. because of a stale cache."""

    def forward(self, x: Any) -> Any:
        y = super().forward(x)
        return y if self.calls < 3 else y + 1


class Memoised(ToyModel):
    """Computes once and always returns that result."""

    def forward(self, x: Any) -> Any:
        if not hasattr(self, "kept"):
            self.kept = super().forward(x)
        return self.kept


class KnowsAddresses(ToyModel):
    """Computes once for each input buffer, and ignores later changes of its content."""

    def forward(self, x: Any) -> Any:
        kept = vars(self).setdefault("kept", {})
        if x.ctypes.data not in kept:
            kept[x.ctypes.data] = super().forward(x)
        return kept[x.ctypes.data]


class OneBehind(ToyModel):
    """Returns the right output of the previous call."""

    def forward(self, x: Any) -> Any:
        now = super().forward(x)
        before, self.kept = getattr(self, "kept", now), now
        return before


class Stateful(ToyModel):
    """Keeps the minimum of its inputs, which changes later outputs."""

    def forward(self, x: Any) -> Any:
        self.least = min(getattr(self, "least", np.inf), float(x[0, -1]))
        return super().forward(x) + np.float32(0.1 * (float(x[0, -1]) - self.least))


class Raises(ToyModel):
    def forward(self, x: Any) -> Any:
        raise ValueError("this model is tired")


class RaisesInInit(ToyModel):
    def __init__(self, **parameters: Any) -> None:
        raise OSError("weights are gone")


class NoArray(ToyModel):
    def forward(self, x: Any) -> Any:
        return {"logits": super().forward(x)}


class Arity(ToyModel):
    def forward(self, x: Any, mask: Any) -> Any:
        return super().forward(x)


class ExitCode(ToyModel):
    def forward(self, x: Any) -> Any:
        os._exit(7)


class Floods(ToyModel):
    """Prints megabytes, also past Python's own streams; its results must not suffer."""

    def forward(self, x: Any) -> Any:
        sys.stdout.write("x" * 1_000_000 + "\n")
        os.write(2, b"y" * 1_000_000)
        return super().forward(x)


class PrintsForEver(ToyModel):
    """Would fill the disk."""

    def forward(self, x: Any) -> Any:
        while True:
            os.write(1, b"z" * 1_000_000)
            time.sleep(0.01)


class Orphans(ToyModel):
    """Leaves processes behind that left the process group; one has no environment, either."""

    def forward(self, x: Any) -> Any:
        if self.calls == 0:
            subprocess.Popen(["sleep", "3600.125"], start_new_session=True)
            mark = f"sleep 3600.125; : {os.environ.get('CBS_TEST_MARKER')}"
            subprocess.run(["env", "-i", "setsid", "-f", "/bin/sh", "-c", mark], check=True)
        return super().forward(x)


class Busy(ToyModel):
    """Takes two milliseconds of a CPU."""

    def forward(self, x: Any) -> Any:
        until = time.perf_counter() + 0.002
        while time.perf_counter() < until:
            pass
        return super().forward(x)


class Drifts(ToyModel):
    """Takes longer with each call, so it never becomes steady."""

    def forward(self, x: Any) -> Any:
        time.sleep(min(1e-3 * 1.15**self.calls, 1.0))
        return super().forward(x)


class KeepsPipes(ToyModel):
    """Forks a child that holds all descriptors open, then dies."""

    def forward(self, x: Any) -> Any:
        if os.fork() == 0:
            time.sleep(3600)
        os.abort()


FAULTS = {
    "segfault": Segfault,
    "hang": Hang,
    "memory": Memory,
    "no-memory": NoMemory,
    "nan": NotANumber,
    "transposed": Transposed,
    "constant": Constant,
    "late-fault": LateFault,
    "memoised": Memoised,
    "knows-addresses": KnowsAddresses,
    "one-behind": OneBehind,
    "stateful": Stateful,
    "raises": Raises,
    "raises-in-init": RaisesInInit,
    "no-array": NoArray,
    "arity": Arity,
    "exit-code": ExitCode,
    "floods": Floods,
    "prints-for-ever": PrintsForEver,
    "orphans": Orphans,
    "busy": Busy,
    "drifts": Drifts,
    "keeps-pipes": KeepsPipes,
    "none": ToyModel,
}


def create_model(*, fault: str = "none", **parameters: Any) -> ToyModel:
    """Returns the toy with the given fault."""
    return FAULTS[fault](**parameters)
