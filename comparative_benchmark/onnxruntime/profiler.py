"""Profiles of ONNX Runtime's own profiler: the time of each node."""

import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnxruntime as ort

from comparative_benchmark.backends.api import Array
from comparative_benchmark.backends.profiles import write_trace
from comparative_benchmark.backends.resident_programs import SingleProgram
from comparative_benchmark.onnxruntime import session

_ROWS = 30


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

    The profiler is switched on when a session is made, so this one is another session of the same
    file with the same options.

    Args:
      model: an ONNX file.
      inputs: one array for each input of the graph.
      directory: where the files go.
      iterations: how many executions, after one that is not recorded in the table.
      device: `cpu` or `cuda`.
      chosen: options of the session.
      work_dir: where the profiler may write.
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
    return [trace, table]


def operator_table(events: Sequence[dict[str, Any]], iterations: int) -> str:
    """Returns time by operator and by node, of the last iterations among the events.

    Args:
      events: of the profiler; a span `model_run` encloses the nodes of an execution.
      iterations: how many executions count.
    """
    runs = [event for event in events if event["name"] == "model_run"][-iterations:]
    begin = min((event["ts"] for event in runs), default=0)
    nodes = [event for event in events if event.get("cat") == "Node" and event["ts"] >= begin]
    total = sum(event["dur"] for event in nodes) or 1
    each_ms = total / max(len(runs), 1) / 1e3
    version = ort.__version__
    lines = [f"ONNX Runtime {version}, {len(runs)} iterations, {each_ms:.3f} ms in nodes of each"]
    for title, key in (
        ("operator", lambda event: event["args"]["op_name"]),
        ("node", lambda event: event["name"].removesuffix("_kernel_time")),
    ):
        times: dict[str, list[int]] = defaultdict(list)
        for event in nodes:
            times[key(event)].append(event["dur"])
        rows = sorted(times.items(), key=lambda item: -sum(item[1]))[:_ROWS]
        lines += ["", f"{'share':>7}  {'us each':>10}  {'calls':>6}  {title}"]
        lines += [
            f"{sum(t) / total:7.1%}  {sum(t) / len(t):10.1f}  {len(t):6}  {name}"
            for name, t in rows
        ]
    return "\n".join(lines) + "\n"
