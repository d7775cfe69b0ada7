"""Profiles of PyTorch's own profiler, Kineto."""

from pathlib import Path

import torch
from torch import profiler
from torch._dynamo.utils import counters

from comparative_benchmark.backends.api import Backend
from comparative_benchmark.backends.operator_profile import read_trace, write
from comparative_benchmark.pt_inductor import operators

_TABLE_ROWS = 30


def profile(backend: Backend, directory: Path, iterations: int) -> list[Path]:
    """Profiles iterations; returns a Chrome trace, tables by time and memory, and the operators.

    In Inductor's programs for the CPU a compiled graph is one span. Kernels get separate spans only
    in a program compiled for that (`BackendInfo.profiling`), which `cbs explain` requests.

    Args:
      backend: the backend whose program runs.
      directory: directory for the files.
      iterations: number of executions; each is a span `iteration`.
    """
    on_gpu = backend.context.device.accelerator_type != "cpu"
    activities = [profiler.ProfilerActivity.CPU]
    if on_gpu:  # kernels and copies, too
        activities.append(profiler.ProfilerActivity.CUDA)
    trace = directory / "trace.json"
    with profiler.profile(
        activities=activities, record_shapes=True, profile_memory=True
    ) as profiled:
        for _ in range(iterations):
            with profiler.record_function("iteration"):
                backend.synchronize(backend.dispatch())
    profiled.export_chrome_trace(str(trace))
    averages = profiled.key_averages(group_by_input_shape=True)
    where = "cuda" if on_gpu else "cpu"
    written = [trace]
    for name, key in (
        ("operators", f"self_{where}_time_total"),
        ("memory", f"self_{where}_memory_usage"),
    ):
        text = averages.table(sort_by=key, row_limit=_TABLE_ROWS, max_name_column_width=100)
        head = f"PyTorch {torch.__version__}, {iterations} iterations, sorted by {key}\n"
        written.append(directory / f"{name}.txt")
        written[-1].write_text(head + text, encoding="utf-8")
    found = operators.profile_of(
        read_trace(trace),
        stack=f"PyTorch {torch.__version__}",
        iterations=iterations,
        breaks=counters["graph_break"],
        compiled=backend.context.compiler != "eager",
    )
    return [*written, write(found, directory)]
