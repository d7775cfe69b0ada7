"""Profiles of TensorFlow's own profiler."""

import gzip
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.tsl.profiler.protobuf import xplane_pb2

_TRACE, _SPACE = "trace.json.gz", "tensorflow.xplane.pb"


def profile_calls(
    call: Callable[[], Any],
    synchronize: Callable[[Any], None],
    directory: Path,
    iterations: int,
    *,
    work_dir: Path,
) -> list[Path]:
    """Profiles iterations and returns a trace for Perfetto and TensorFlow's own file.

    The latter holds all that was recorded; XProf and TensorBoard read it from a folder
    `plugins/profile/<any name>/`. TensorFlow leaves it to them to make a trace of it; here it is
    made at once.

    Args:
      call: starts one execution and returns its outputs.
      synchronize: waits for outputs.
      directory: where the files go.
      iterations: how many executions; each is a step `iteration`.
      work_dir: where TensorFlow may make its folders.

    Raises:
      RuntimeError: TensorFlow wrote no profile.
    """
    scratch = work_dir / "tf-profile"
    # Spans of every Python call would slow the host and hide those of the runtime.
    options = tf.profiler.experimental.ProfilerOptions(host_tracer_level=2, python_tracer_level=0)
    tf.profiler.experimental.start(str(scratch), options)
    try:
        for index in range(iterations):
            with tf.profiler.experimental.Trace("iteration", step_num=index, _r=1):
                synchronize(call())
    finally:
        tf.profiler.experimental.stop()
    found = next(scratch.glob("plugins/profile/*/*.xplane.pb"), None)
    if found is None:
        raise RuntimeError(f"TensorFlow {tf.__version__} wrote no profile")
    space = xplane_pb2.XSpace.FromString(found.read_bytes())
    document = {"traceEvents": list(trace_events(space)), "displayTimeUnit": "ms"}
    (directory / _TRACE).write_bytes(gzip.compress(json.dumps(document).encode()))
    shutil.move(found, directory / _SPACE)
    shutil.rmtree(scratch)
    return [directory / _TRACE, directory / _SPACE]


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
        yield _named("process_name", process, 0, space.planes[process].name)
    for process, plane, row, line in lines:
        yield _named("thread_name", process, row, line.display_name or line.name)
        for event in line.events:
            metadata = plane.event_metadata[event.metadata_id]
            yield {
                "name": metadata.display_name or metadata.name or "unnamed",
                "ph": "X",
                "ts": (line.timestamp_ns - first_ns) / 1e3 + event.offset_ps / 1e6,
                "dur": event.duration_ps / 1e6,
                "pid": process,
                "tid": row,
            }


def _named(kind: str, process: int, row: int, name: str) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": process, "tid": row, "args": {"name": name}}
