"""Profiles of TensorFlow's own profiler, and the operators in them: XLA's, and TensorFlow's."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from comparative_benchmark.backends import operator_profile
from comparative_benchmark.backends.api import Backend
from comparative_benchmark.backends.operator_profile import (
    Operator,
    OperatorProfile,
    operators_of,
    write,
)

_KIND = re.compile(r"_?[A-Z][A-Za-z0-9]+")
# These start a compiled program, and pass its arguments and results.
_LAUNCHES = {
    *("StatefulPartitionedCall", "PartitionedCall", "_XlaCompile", "_XlaRun", "XlaLaunch"),
    *("_Arg", "_Retval", "_XlaMerge", "ReadVariableOp", "NoOp", "TfrtProcessExecuteOp"),
}


def profile(backend: Backend, directory: Path, iterations: int, hlo: str) -> list[Path]:
    """Profiles iterations; returns a trace for Perfetto, TensorFlow's own file, and the operators.

    TensorFlow leaves the conversion to a trace to XProf and TensorBoard; this does it at once.

    Args:
      backend: the backend whose program runs.
      directory: directory for the files.
      iterations: number of executions; each is a step `iteration`.
      hlo: the optimised program; empty if XLA was not used.

    Raises:
      RuntimeError: TensorFlow wrote no profile.
    """
    import tensorflow as tf
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    scratch = backend.context.work_dir / "tf-profile"
    stack = f"TensorFlow {tf.__version__}"
    # Spans of Python calls would slow the host and hide those of the runtime.
    options = tf.profiler.experimental.ProfilerOptions(host_tracer_level=2, python_tracer_level=0)
    tf.profiler.experimental.start(str(scratch), options)
    try:
        for index in range(iterations):
            with tf.profiler.experimental.Trace("iteration", step_num=index, _r=1):
                backend.synchronize(backend.dispatch())
    finally:
        tf.profiler.experimental.stop()
    planes = {"*.xplane.pb": "tensorflow.xplane.pb"}
    [space_file] = operator_profile.take_files(scratch, directory, planes, stack=stack)
    trace = directory / "trace.json.gz"
    space = xplane_pb2.XSpace.FromString(space_file.read_bytes())
    events = list(trace_events(space))
    operator_profile.write_trace(trace, events)
    measured = profile_of(events, hlo, stack=stack, iterations=iterations)
    return [trace, space_file, write(measured, directory)]


def trace_events(space: Any) -> Iterator[dict[str, Any]]:
    """Yields the Chrome trace events of a profile: a process for each plane, a row for each line.

    Times are microseconds since the first line began.
    """
    lines = [
        (process, plane, row, line)
        for process, plane in enumerate(space.planes)
        for row, line in enumerate(plane.lines)
        if line.events
    ]
    first_ns = min((line.timestamp_ns for *_, line in lines), default=0)
    for process in sorted({process for process, *_ in lines}):
        yield operator_profile.naming_event("process_name", process, 0, space.planes[process].name)
    for process, plane, row, line in lines:
        yield operator_profile.naming_event(
            "thread_name", process, row, line.display_name or line.name
        )
        for event in line.events:
            metadata = plane.event_metadata[event.metadata_id]
            events = {
                "name": metadata.display_name or metadata.name or "unnamed",
                "ph": "X",
                "ts": (line.timestamp_ns - first_ns) / 1e3 + event.offset_ps / 1e6,
                "dur": event.duration_ps / 1e6,
                "pid": process,
                "tid": row,
            }
            if operation := _hlo_op(plane, event):
                events["args"] = {"hlo_op": operation}
            yield events


def _hlo_op(plane: Any, event: Any) -> str:
    """Returns the instruction of XLA's program that a span belongs to; empty for none."""
    for stat in event.stats:
        if plane.stat_metadata[stat.metadata_id].name == "hlo_op":
            text: str = stat.str_value or plane.stat_metadata[stat.ref_value].name
            return text
    return ""


def profile_of(
    events: Sequence[Mapping[str, Any]], hlo: str, *, stack: str, iterations: int
) -> OperatorProfile:
    """Returns the operators of a trace.

    TensorFlow's executors record an operation as `name:type`; operations that they record next to a
    compiled program are not part of its cluster.

    Args:
      events: events of the trace.
      hlo: the optimised program; empty if XLA was not used.
      stack: the profiled stack, with its version.
      iterations: number of executions in the trace.
    """
    spans, outside = operator_profile.spans_of(events), {}
    for event in events:
        name, _, kind = str(event["name"]).rpartition(":")
        is_named = event["ph"] == "X" and "hlo_op" not in event.get("args", ())
        if is_named and name and _KIND.fullmatch(kind):
            outside[name] = Operator(name=name, does=kind)
            start, row = float(event["ts"]), (event["pid"], event["tid"])
            spans.append((name, row, start, start + float(event["dur"])))
    told = {**operator_profile.operators_in(hlo), **outside}
    operators = [
        operator
        for operator in operators_of(spans, iterations, told)
        if operator.does not in _LAUNCHES
    ]
    left_out = Counter(operator.does for operator in operators if operator.name in outside)
    return OperatorProfile(
        stack=stack,
        iterations=iterations,
        operators=tuple(operators),
        fallbacks=tuple(
            f"{count} {kind} outside the XLA cluster" for kind, count in left_out.most_common()
        )
        if hlo
        else (),
        fusions=operator_profile.fusions_in(hlo),
    )
