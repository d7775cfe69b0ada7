"""Files that profilers leave: XLA's own, and Chrome traces."""

import gzip
import json
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any


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


def naming_event(kind: str, process: int, row: int, name: str) -> dict[str, Any]:
    """Returns the event of a trace that names a process or a row: `process_name`, `thread_name`."""
    return {"name": kind, "ph": "M", "pid": process, "tid": row, "args": {"name": name}}
