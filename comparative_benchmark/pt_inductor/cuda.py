"""PyTorch features for NVIDIA GPUs only: events, TF32, and CUDA graphs."""

import warnings
from typing import Any

import torch
from torch._dynamo.utils import counters

from comparative_benchmark.backends.api import DeviceTimer, UnsupportedError
from openxla.benchmark.models.shared_model import as_tuple


class CudaEvents(DeviceTimer):
    """Pairs of CUDA events on the current stream."""

    def __init__(self) -> None:
        self._pairs: list[tuple[Any, Any]] = []
        self._marked = 0

    def reserve(self, executions: int) -> None:
        """Creates the events by recording them: PyTorch creates an event on its first record."""
        while len(self._pairs) < executions:
            pair = (torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True))
            for event in pair:
                event.record()
            self._pairs.append(pair)

    def start(self) -> None:
        """Records the first event of the next pair."""
        self.reserve(self._marked + 1)
        self._pairs[self._marked][0].record()

    def stop(self) -> None:
        """Records the second one."""
        self._pairs[self._marked][1].record()
        self._marked += 1

    def elapsed_ms(self) -> list[float]:
        """Returns the time between the events of each pair; they must be complete."""
        elapsed = [start.elapsed_time(stop) for start, stop in self._pairs[: self._marked]]
        self._marked = 0
        return elapsed


def forbid_tf32() -> None:
    """Keeps products and convolutions of float32 from being rounded to TF32.

    PyTorch 2.9 has new names for the two settings. Reading an old one, as Inductor does, raises an
    error if the new ones differ: so both are set, the old ones first.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the old names
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False
    for setting in _new_settings():
        setting.fp32_precision = "ieee"


def allows_tf32() -> bool:
    """Returns whether products, convolutions or recurrences of float32 may be rounded to TF32."""
    if settings := _new_settings():
        return any(setting.fp32_precision == "tf32" for setting in settings)
    return bool(torch.backends.cuda.matmul.allow_tf32 or torch.backends.cudnn.allow_tf32)


def require_graphs(graphs: int) -> None:
    """Raises UnsupportedError if Inductor put none of its graphs into a CUDA graph.

    Inductor silently skips CUDA graphs if a graph has an operator on the CPU or writes to its
    inputs.
    """
    if graphs and skipped_graphs() >= graphs:
        raise UnsupportedError(
            f"Inductor {torch.__version__} runs none of this model's graphs as CUDA graphs "
            "(`TORCH_LOGS=cudagraphs` prints why): measure `inductor`, which is equivalent"
        )


def skipped_graphs() -> int:
    """Returns how often Inductor skipped a CUDA graph."""
    return int(counters["inductor"]["cudagraph_skips"])


def forget_graphs() -> None:
    """Frees the recorded graphs with their memory, for a process that serves another model."""
    from torch._inductor.cudagraph_trees import reset_cudagraph_trees

    reset_cudagraph_trees()


def copies(outputs: Any) -> tuple[torch.Tensor, ...]:
    """Returns copies: a CUDA graph writes its outputs to the same memory on each run."""
    return tuple(value.clone() for value in as_tuple(outputs))


def _new_settings() -> list[Any]:
    """Returns the settings that have the new name, `fp32_precision`; none before PyTorch 2.9."""
    cudnn = torch.backends.cudnn
    parts = (getattr(cudnn, name, None) for name in ("conv", "rnn"))
    named = (torch.backends.cuda.matmul, *parts)
    return [part for part in named if hasattr(part, "fp32_precision")]
