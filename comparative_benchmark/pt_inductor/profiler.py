"""Profiles of PyTorch's own profiler, Kineto."""

from pathlib import Path

import torch
from torch import profiler

from comparative_benchmark.backends.api import Backend

_TABLE_ROWS = 30


def profile(backend: Backend, directory: Path, iterations: int) -> list[Path]:
    """Profiles iterations and returns a Chrome trace and a table of the operators.

    In programs of Inductor for the CPU a compiled graph is one span: its kernels would be told
    apart only by a program compiled for that, which would be another one than was measured.

    Args:
      backend: whose program runs.
      directory: where the files go.
      iterations: how many executions; each is a span `iteration`.
    """
    on_gpu = backend.context.device.accelerator_type != "cpu"
    activities = [profiler.ProfilerActivity.CPU]
    if on_gpu:  # kernels and copies, too
        activities.append(profiler.ProfilerActivity.CUDA)
    trace, table = directory / "trace.json", directory / "operators.txt"
    with profiler.profile(activities=activities, record_shapes=True) as profiled:
        for _ in range(iterations):
            with profiler.record_function("iteration"):
                backend.synchronize(backend.dispatch())
    profiled.export_chrome_trace(str(trace))
    key = "self_cuda_time_total" if on_gpu else "self_cpu_time_total"
    averages = profiled.key_averages(group_by_input_shape=True)
    text = averages.table(sort_by=key, row_limit=_TABLE_ROWS, max_name_column_width=100)
    head = f"PyTorch {torch.__version__}, {iterations} iterations, sorted by {key}\n"
    table.write_text(head + text, encoding="utf-8")
    return [trace, table]
