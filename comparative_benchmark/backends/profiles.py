"""Files that profilers leave: XLA's own, Chrome traces, and tables of times."""

import gzip
import json
import shutil
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

_ROWS = 30


def take_files(
    scratch: Path, directory: Path, wanted: Mapping[str, str], *, stack: str
) -> list[Path]:
    """Moves files of a profile, whose names hold its time and the host's name.

    The `*.xplane.pb` holds all that XLA's profiler has recorded; XProf and TensorBoard read it from
    a folder `plugins/profile/<any name>/`. Neither is needed to write it.

    Args:
      scratch: where the profiler wrote; removed.
      directory: where they go.
      wanted: new names, by pattern of the profiler's.
      stack: what has profiled, with its version.

    Raises:
      RuntimeError: one is not there.
    """
    files = []
    for pattern, name in wanted.items():
        found = next(scratch.glob(f"plugins/profile/*/{pattern}"), None)
        if found is None:
            raise RuntimeError(f"{stack} wrote no {pattern} into its profile")
        files.append(Path(shutil.move(found, directory / name)))
    shutil.rmtree(scratch)
    return files


def write_trace(path: Path, events: Iterable[Mapping[str, Any]]) -> None:
    """Writes a Chrome trace, compressed if the name ends in `.gz`."""
    content = json.dumps({"traceEvents": list(events), "displayTimeUnit": "ms"}).encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


def read_trace(path: Path) -> list[dict[str, Any]]:
    """Returns the events of a Chrome trace, compressed if the name ends in `.gz`."""
    content = path.read_bytes()
    document = json.loads(gzip.decompress(content) if path.suffix == ".gz" else content)
    events: list[dict[str, Any]] = document["traceEvents"]
    return events


def naming_event(kind: str, process: int, row: int, name: str) -> dict[str, Any]:
    """Returns the event of a trace that names a process or a row: `process_name`, `thread_name`."""
    return {"name": kind, "ph": "M", "pid": process, "tid": row, "args": {"name": name}}


def time_table(
    head: str, kinds: tuple[str, str], spans: Iterable[tuple[str, str, float]], iterations: int
) -> str:
    """Returns a table of times by two kinds of names, each with its share, the longest first.

    Args:
      head: what has profiled, with its version.
      kinds: what the names are, e.g. `operator` and `node`.
      spans: a name of each kind, and a time in us.
      iterations: how many executions the spans are of.
    """
    times: tuple[dict[str, list[float]], ...] = (defaultdict(list), defaultdict(list))
    for *names, time_us in spans:
        for by_name, name in zip(times, names, strict=True):
            by_name[name].append(time_us)
    total = sum(map(sum, times[0].values())) or 1
    each_ms = total / max(iterations, 1) / 1e3
    lines = [f"{head}, {iterations} iterations, {each_ms:.3f} ms in {kinds[1]}s of each"]
    for kind, by_name in zip(kinds, times, strict=True):
        lines += ["", f"{'share':>7}  {'us an iteration':>15}  {'calls':>6}  {kind}"]
        rows = sorted(by_name.items(), key=lambda item: -sum(item[1]))[:_ROWS]
        lines += [
            f"{sum(t) / total:7.1%}  {sum(t) / max(iterations, 1):15.1f}  {len(t):6}  {name}"
            for name, t in rows
        ]
    return "\n".join(lines) + "\n"
