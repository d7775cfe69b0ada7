"""Profiles of IREE's HAL: the host's time per dispatch, and the dispatches as operators.

The Python binding of IREE 3.13 cannot profile: `HalDevice.begin_profiling` has no argument for the
output file. The tools in the same wheel can: `iree-benchmark-module` runs the program with
profiling on, `iree-profile` reads the result. So a profile covers the measured program with its
weights, inputs and CPUs, in a separate process. (The wheel's other instrumented runtime, Tracy's,
records more, but only a Tracy viewer of the same version opens its files.)
"""

import heapq
import json
import math
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from comparative_benchmark.backends.api import Array, UnsupportedError
from comparative_benchmark.backends.operator_profile import (
    Cost,
    Operator,
    OperatorProfile,
    naming_event,
    operators_of,
    product,
    write,
    write_trace,
)
from comparative_benchmark.iree.conventions import ENTRY, PARAMETER_SCOPE, type_of

_DISPATCH = re.compile(r"^.*?_dispatch_\d+_?")
_PRODUCT = re.compile(r"matmul(?:_transpose_\w)?_(\d+(?:x\d+){2,})_\D*(\d+)")
# Events that IREE's local devices can record; they refuse any others.
_EVENTS = "queue-events,host-execution,executable-metadata"
_REPORTS = ("explain", "dispatch")


def profile_program(
    vmfb: Path,
    irpa: Path,
    inputs: Sequence[Array],
    directory: Path,
    iterations: int,
    *,
    cpus: Sequence[int],
    work_dir: Path,
) -> list[Path]:
    """Profiles iterations; returns IREE's bundle, its reports, a Chrome trace, and the operators.

    Args:
      vmfb: the program.
      irpa: its weights.
      inputs: one array for each argument.
      directory: directory for the files.
      iterations: number of executions.
      cpus: CPUs that compute; with one, the calling thread computes.
      work_dir: directory for temporary input files.

    Raises:
      UnsupportedError: this IREE has no such tools.
      RuntimeError: a tool failed.
    """
    bundle, report, trace = (
        directory / name for name in ("program.ireeprof", "dispatches.txt", "trace.json")
    )
    _run(
        "iree-benchmark-module",
        *device_flags(cpus),
        f"--module={vmfb}",
        f"--parameters={PARAMETER_SCOPE}={irpa}",
        f"--function={ENTRY}",
        *_input_flags(inputs, work_dir),
        f"--benchmark_min_time={iterations}x",
        f"--device_profiling_mode={_EVENTS}",
        f"--device_profiling_output={bundle}",
    )
    report.write_text(
        "\n".join(_run("iree-profile", name, str(bundle)) for name in _REPORTS), encoding="utf-8"
    )
    exported = work_dir / "profile.jsonl"
    _run("iree-profile", "export", "--format=ireeperf-jsonl", f"--output={exported}", str(bundle))
    with exported.open(encoding="utf-8") as lines:
        events = trace_events(json.loads(line) for line in lines)
    exported.unlink()
    write_trace(trace, events)
    profile = profile_of(events, iterations, stack=f"IREE {version('iree-base-runtime')}")
    return [bundle, report, trace, write(profile, directory)]


def profile_of(
    events: Sequence[Mapping[str, Any]], iterations: int, *, stack: str
) -> OperatorProfile:
    """Returns the dispatches of a trace as operators.

    An iteration may be several executions in the trace, because loops run on the host.
    """
    spans, told = [], {}
    for event in events:
        if event.get("cat") == "dispatch":
            name, start = str(event["name"]), float(event["ts"])
            # The end of a dispatch's name describes it: `main_dispatch_4_matmul_32x128x128_f32`.
            does = _DISPATCH.sub("", name)
            told[name] = Operator(name=name, does=does, **_cost(does))
            spans.append((name, event["tid"], start, start + float(event["dur"])))
    operators = operators_of(spans, iterations, told)
    return OperatorProfile(
        stack=stack,
        iterations=iterations,
        operators=operators,
        fusions=(
            f"dispatches: {sum(each.calls for each in operators):.0f}, kernels: {len(operators)}",
        ),
    )


def _cost(does: str) -> Cost:
    """Returns flops and bytes of a product by the name of its dispatch, which ends in its shape.

    A batch, if any, is the first number, and the depth is the last.
    """
    match = _PRODUCT.search(does)
    if match is None:
        return Cost()
    *batch, m, n, k = map(int, match[1].split("x"))
    bits = int(match[2])
    return product(m, n, k, batch=math.prod(batch), item_bytes=max(bits // 8, 1))


def trace_events(records: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns Chrome trace events of the host's spans in a stream of `ireeperf-jsonl` records.

    Dispatches that ran at the same time are on different rows, because spans of a row must nest.
    Times are microseconds of CLOCK_MONOTONIC.
    """
    spans = [r for r in records if r["record_type"] == "host_execution_event" and r["valid"]]
    spans.sort(key=lambda r: r["start_host_time_ns"])
    events = [naming_event("process_name", 1, 0, "IREE")]
    for first_row, name, of_row in (
        (1, "queue", [r for r in spans if r["op"] != "dispatch"]),
        (100, "dispatches", [r for r in spans if r["op"] == "dispatch"]),
    ):
        rows: set[int] = set()
        for record, row in _in_rows(of_row):
            if row not in rows:
                rows.add(row)
                events.append(naming_event("thread_name", 1, first_row + row, f"{name} {row + 1}"))
            events.append(_complete_event(record, first_row + row))
    return events


def _in_rows(spans: Sequence[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], int]]:
    """Yields spans, sorted by start, each with the row that has been free for the longest time."""
    rows: list[tuple[int, int]] = []  # when each row becomes free, and its number
    for record in spans:
        is_one_free = rows and rows[0][0] <= record["start_host_time_ns"]
        row = heapq.heappop(rows)[1] if is_one_free else len(rows)
        heapq.heappush(rows, (record["end_host_time_ns"], row))
        yield record, row


def _complete_event(record: dict[str, Any], row: int) -> dict[str, Any]:
    start_ns, end_ns = record["start_host_time_ns"], record["end_host_time_ns"]
    return {
        "name": record["key"] or record["op"],
        "cat": record["op"],
        "ph": "X",
        "ts": start_ns / 1e3,
        "dur": (end_ns - start_ns) / 1e3,
        "pid": 1,
        "tid": row,
        "args": {
            "submission": record["submission_id"],
            "tiles": record["tile_count"],
            "workgroup_count": record["workgroup_count"],
        },
    }


def _input_flags(inputs: Sequence[Array], work_dir: Path) -> list[str]:
    """Writes inputs as bytes (the tool's .npy reader has no bfloat16) and returns their flags."""
    flags = []
    for index, value in enumerate(inputs):
        path = work_dir / f"profile-input-{index}.bin"
        np.ascontiguousarray(value).tofile(path)
        flags.append(f"--input={type_of(value)}=@{path}")
    return flags


def device_flags(cpus: Sequence[int]) -> list[str]:
    """Returns the tools' flags for some CPUs; with one, the calling thread computes."""
    if len(cpus) == 1:
        return ["--device=local-sync"]
    return ["--device=local-task", f"--task_topology_cpu_ids={','.join(map(str, cpus))}"]


def _run(tool: str, *arguments: str) -> str:
    import iree.runtime as rt

    path = Path(rt.benchmark_exe()).with_name(tool)
    if not path.exists():
        raise UnsupportedError(f"profiling needs {tool}: install iree-base-runtime 3.13 or newer")
    done = subprocess.run(
        [str(path), *arguments], capture_output=True, text=True, errors="replace", check=False
    )
    if done.returncode:
        said = next(iter(done.stderr.strip().splitlines()), "no message")
        raise RuntimeError(f"{tool} failed with exit code {done.returncode}: {said}")
    return done.stdout
