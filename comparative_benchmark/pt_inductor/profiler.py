"""Profiles of PyTorch's own profiler, Kineto."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function

_TABLE_ROWS = 30


def profile_calls(
    call: Callable[[], Any],
    synchronize: Callable[[Any], None],
    directory: Path,
    iterations: int,
    *,
    on_gpu: bool,
) -> list[Path]:
    """Profiles iterations and returns a Chrome trace and a table of the operators.

    In programs of Inductor for the CPU a compiled graph is one span: its kernels would be told
    apart only by a program compiled for that, which would be another one than was measured.

    Args:
      call: starts one execution and returns its outputs.
      synchronize: waits for outputs.
      directory: where the files go.
      iterations: how many executions; each is a span `iteration`.
      on_gpu: also records kernels and copies of the GPU.
    """
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
    trace, table = directory / "trace.json", directory / "operators.txt"
    with profile(activities=activities, record_shapes=True) as profiled:
        for _ in range(iterations):
            with record_function("iteration"):
                synchronize(call())
    profiled.export_chrome_trace(str(trace))
    key = "self_cuda_time_total" if on_gpu else "self_cpu_time_total"
    averages = profiled.key_averages(group_by_input_shape=True)
    text = averages.table(sort_by=key, row_limit=_TABLE_ROWS, max_name_column_width=100)
    head = f"PyTorch {torch.__version__}, {iterations} iterations, sorted by {key}\n"
    table.write_text(head + text, encoding="utf-8")
    return [trace, table]
