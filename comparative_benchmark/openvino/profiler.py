"""Profiles of OpenVINO's performance counters: the time of each layer."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from comparative_benchmark.backends.api import Array
from comparative_benchmark.backends.operator_profile import write
from comparative_benchmark.backends.profiles import time_table
from comparative_benchmark.backends.resident_programs import SingleProgram
from comparative_benchmark.openvino.operators import profile_of
from comparative_benchmark.openvino.program import DEVICE
from comparative_benchmark.openvino.requests import CompiledProgram
from comparative_benchmark.openvino.toolkit import VERSION, ov


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
    spans: list[tuple[str, str, float]] = []
    seen: set[str] = set()
    for _ in range(iterations):
        bound.run()
        for info in program.requests[0].get_profiling_info():
            # Of less than a microsecond OpenVINO says that it was not executed.
            seen.add(info.node_name)
            if info.status == info.Status.EXECUTED:
                time_us = info.real_time.total_seconds() * 1e6
                kind = {"layer": info.node_type, "kernel": info.exec_type}
                layers.setdefault(info.node_name, {**kind, "times_us": []})["times_us"].append(
                    time_us
                )
                spans.append((f"{info.node_type} {info.exec_type}", info.node_name, time_us))
    times, table = directory / "layers.json", directory / "layers.txt"
    times.write_text(json.dumps({"iterations": iterations, "layers": layers}), encoding="utf-8")
    text = time_table(f"OpenVINO {VERSION}", ("layer and kernel", "layer"), spans, iterations)
    table.write_text(text, encoding="utf-8")
    stack, left_out = f"OpenVINO {VERSION}", len(seen - layers.keys())
    found = profile_of(layers, iterations, stack=stack, left_out=left_out)
    return [times, table, write(found, directory)]
