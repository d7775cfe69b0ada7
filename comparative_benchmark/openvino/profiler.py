"""Profiles of OpenVINO's performance counters: the time of each layer."""

import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from comparative_benchmark.backends.api import Array
from comparative_benchmark.backends.resident_programs import SingleProgram
from comparative_benchmark.openvino.program import DEVICE
from comparative_benchmark.openvino.requests import CompiledProgram
from comparative_benchmark.openvino.toolkit import VERSION, ov

_ROWS = 30


def profile_model(
    path: Path,
    properties: dict[str, Any],
    inputs: Sequence[Array],
    directory: Path,
    iterations: int,
) -> list[Path]:
    """Profiles iterations; returns the layers with their times, and a table of them.

    Counters are switched on when a model is compiled, so this is another compilation of the same
    file with the same properties. They have durations, no points in time: there is no trace.

    Args:
      path: of the model.
      properties: that it was compiled with.
      inputs: one array for each of its inputs.
      directory: where the files go.
      iterations: how many executions, after one that is not counted.
    """
    counting = {name: value for name, value in properties.items() if name != "CACHE_DIR"}
    compiled = ov.Core().compile_model(path, DEVICE, {**counting, "PERF_COUNT": True})
    program = CompiledProgram(compiled)
    bound = SingleProgram(program, inputs)
    bound.run()
    layers: dict[str, dict[str, Any]] = {}
    for _ in range(iterations):
        bound.run()
        for info in program.requests[0].get_profiling_info():
            if info.status == info.Status.EXECUTED:
                layer = layers.setdefault(
                    info.node_name,
                    {"layer": info.node_type, "kernel": info.exec_type, "times_us": []},
                )
                layer["times_us"].append(info.real_time.total_seconds() * 1e6)
    times, table = directory / "layers.json", directory / "layers.txt"
    times.write_text(json.dumps({"iterations": iterations, "layers": layers}), encoding="utf-8")
    table.write_text(layer_table(layers, iterations), encoding="utf-8")
    return [times, table]


def layer_table(layers: dict[str, dict[str, Any]], iterations: int) -> str:
    """Returns time by kind of layer, with its kernel, and by layer.

    Args:
      layers: by name; kind (`layer`), `kernel` and `times_us`, a time for each iteration in which
        the layer took a microsecond at least: of less, OpenVINO says that it was not executed.
      iterations: how many there were.
    """
    total = sum(sum(layer["times_us"]) for layer in layers.values()) or 1.0
    each_ms = total / max(iterations, 1) / 1e3
    lines = [f"OpenVINO {VERSION}, {iterations} iterations, {each_ms:.3f} ms in layers of each"]
    kinds: dict[str, float] = defaultdict(float)
    for layer in layers.values():
        kinds[f"{layer['layer']} {layer['kernel']}"] += sum(layer["times_us"])
    single = {name: sum(layer["times_us"]) for name, layer in layers.items()}
    for title, times in (("layer, kernel", kinds), ("layer", single)):
        rows = sorted(times.items(), key=lambda item: -item[1])[:_ROWS]
        lines += ["", f"{'share':>7}  {'us an iteration':>15}  {title}"]
        lines += [f"{t / total:7.1%}  {t / max(iterations, 1):15.1f}  {name}" for name, t in rows]
    return "\n".join(lines) + "\n"
