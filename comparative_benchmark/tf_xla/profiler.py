"""Profiles of TensorFlow's own profiler."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import tensorflow as tf
from tensorflow.tsl.profiler.protobuf import xplane_pb2

from comparative_benchmark.backends import hlo_operators, operator_profile, profiles
from comparative_benchmark.backends.api import Backend
from comparative_benchmark.backends.operator_profile import (
    Operator,
    OperatorProfile,
    longest_first,
    operators_of,
)

_KIND = re.compile(r"_?[A-Z][A-Za-z0-9]+")
# These start a compiled program, and pass its arguments and results.
_LAUNCHES = {
    *("StatefulPartitionedCall", "PartitionedCall", "_XlaCompile", "_XlaRun", "XlaLaunch"),
    *("_Arg", "_Retval", "_XlaMerge", "XlaLocalLaunchBase", "ReadVariableOp", "NoOp"),
}


def profile(backend: Backend, directory: Path, iterations: int, hlo: str) -> list[Path]:
    """Profiles iterations; returns a trace for Perfetto, TensorFlow's own file, and the operators.

    TensorFlow leaves it to XProf and TensorBoard to make a trace of it; here it is made at once.

    Args:
      backend: whose program runs.
      directory: where the files go.
      iterations: how many executions; each is a step `iteration`.
      hlo: the program as XLA has optimised it; empty where XLA had no part in it.

    Raises:
      RuntimeError: TensorFlow wrote no profile.
    """
    scratch = backend.context.work_dir / "tf-profile"
    # Spans of every Python call would slow the host and hide those of the runtime.
    options = tf.profiler.experimental.ProfilerOptions(host_tracer_level=2, python_tracer_level=0)
    tf.profiler.experimental.start(str(scratch), options)
    try:
        for index in range(iterations):
            with tf.profiler.experimental.Trace("iteration", step_num=index, _r=1):
                backend.synchronize(backend.dispatch())
    finally:
        tf.profiler.experimental.stop()
    [space_file] = profiles.take_files(
        scratch,
        directory,
        {"*.xplane.pb": "tensorflow.xplane.pb"},
        stack=f"TensorFlow {tf.__version__}",
    )
    trace = directory / "trace.json.gz"
    space = xplane_pb2.XSpace.FromString(space_file.read_bytes())
    events = list(trace_events(space))
    profiles.write_trace(trace, events)
    found = operator_profile_of(events, hlo, iterations)
    return [trace, space_file, operator_profile.write(found, directory)]


def operator_profile_of(
    events: Sequence[Mapping[str, Any]], hlo: str, iterations: int
) -> OperatorProfile:
    """Returns the operators of a trace: those of XLA's program, and TensorFlow's own around it.

    TensorFlow's executors record an operation as `name:type`; what they record beside a compiled
    program has been left out of its cluster.
    """
    stack = f"TensorFlow {tf.__version__}"
    spans, told = [], {}
    for event in events:
        name, _, kind = str(event["name"]).rpartition(":")
        if event["ph"] != "X" or "hlo_op" in event.get("args", ()):
            continue
        if name and _KIND.fullmatch(kind):
            told[name] = Operator(name=name, does=kind)
            start = float(event["ts"])
            row = (event["pid"], event["tid"])
            spans.append((name, row, start, start + float(event["dur"])))
    outside = [
        operator
        for operator in operators_of(spans, iterations, told)
        if operator.does not in _LAUNCHES
    ]
    if not hlo:
        return OperatorProfile(stack=stack, iterations=iterations, operators=tuple(outside))
    within = hlo_operators.profile_of(events, hlo, stack=stack, iterations=iterations)
    return attrs.evolve(
        within,
        operators=longest_first([*within.operators, *outside]),
        fallbacks=tuple(
            f"{count} {kind} outside of the XLA cluster"
            for kind, count in Counter(operator.does for operator in outside).most_common()
        ),
    )


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
        yield profiles.naming_event("process_name", process, 0, space.planes[process].name)
    for process, plane, row, line in lines:
        yield profiles.naming_event("thread_name", process, row, line.display_name or line.name)
        for event in line.events:
            metadata = plane.event_metadata[event.metadata_id]
            found = {
                "name": metadata.display_name or metadata.name or "unnamed",
                "ph": "X",
                "ts": (line.timestamp_ns - first_ns) / 1e3 + event.offset_ps / 1e6,
                "dur": event.duration_ps / 1e6,
                "pid": process,
                "tid": row,
            }
            if operation := _hlo_op(plane, event):
                found["args"] = {"hlo_op": operation}
            yield found


def _hlo_op(plane: Any, event: Any) -> str:
    """Returns which instruction of XLA's program a span is of; empty for none."""
    for stat in event.stats:
        if plane.stat_metadata[stat.metadata_id].name == "hlo_op":
            text: str = stat.str_value or plane.stat_metadata[stat.ref_value].name
            return text
    return ""
