"""Profiles of ONNX Runtime's own profiler: the time of each node."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnxruntime as ort

from comparative_benchmark.backends.api import Array
from comparative_benchmark.backends.operator_profile import time_table, write, write_trace
from comparative_benchmark.backends.resident_programs import SingleProgram
from comparative_benchmark.onnxruntime import session
from comparative_benchmark.onnxruntime.operators import nodes_of, profile_of


def profile_model(
    model: Path,
    inputs: Sequence[Array],
    directory: Path,
    iterations: int,
    *,
    device: str,
    chosen: ort.SessionOptions,
    work_dir: Path,
) -> list[Path]:
    """Profiles iterations; returns a Chrome trace and a table of operators.

    The profiler is switched on when a session is created, so this is another session of the same
    file with the same options.

    Args:
      model: an ONNX file.
      inputs: one array for each input of the graph.
      directory: directory for the files.
      iterations: number of executions, after one that is not recorded in the table.
      device: `cpu` or `cuda`.
      chosen: options of the session.
      work_dir: directory for the profiler's files.
    """
    chosen.enable_profiling = True
    chosen.profile_file_prefix = str(work_dir / "ort-profile")
    profiled = session.open_session(model, device, chosen)
    bound = SingleProgram(session.SessionProgram(profiled, device), inputs)
    for _ in range(1 + iterations):
        bound.run()
    written = Path(profiled.end_profiling())
    events: list[dict[str, Any]] = json.loads(written.read_text(encoding="utf-8"))
    written.unlink()
    trace, table = directory / "trace.json", directory / "operators.txt"
    write_trace(trace, events)
    table.write_text(operator_table(events, iterations), encoding="utf-8")
    first, *_ = profiled.get_providers()
    stack = f"ONNX Runtime {ort.__version__}"
    found = profile_of(events, iterations, stack=stack, provider=first)
    return [trace, table, write(found, directory)]


def operator_table(events: Sequence[dict[str, Any]], iterations: int) -> str:
    """Returns time by operator and by node, over the last iterations among the events.

    Args:
      events: events of the profiler; a span `model_run` encloses the nodes of an execution.
      iterations: number of executions to count.
    """
    nodes, runs = nodes_of(events, iterations)
    return time_table(
        f"ONNX Runtime {ort.__version__}",
        ("operator", "node"),
        [
            (
                event["args"]["op_name"],
                event["name"].removesuffix("_kernel_time"),
                event["dur"],
            )
            for event in nodes
        ],
        runs,
    )
