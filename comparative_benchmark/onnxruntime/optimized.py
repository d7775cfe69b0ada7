"""The graph that ONNX Runtime runs, as it writes it to a file.

In a process of its own: a second session and the written weights would count towards the memory of
the measured one, and writing towards its time to compile.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import attrs

from comparative_benchmark.onnxruntime import graph

_MODEL, _WEIGHTS = "optimized.onnx", "optimized.onnx.data"
# Smaller weights stay in the file: most are constants of the graph.
_SMALLEST_EXTERNAL_BYTES = 1024
_EXTERNAL = "session.optimized_model_external_initializers"


@attrs.frozen(kw_only=True)
class OptimizedGraph:
    """What ONNX Runtime made of a graph.

    Attributes:
      exported, optimized: what the graphs compute.
      sha256: identity of the optimized graph with its weights.
      size_bytes: of the optimized graph, without its weights.
      weights_size_bytes: of these; folding makes them fewer or more than the exported ones.
    """

    exported: graph.GraphSummary
    optimized: graph.GraphSummary
    sha256: str
    size_bytes: int
    weights_size_bytes: int


def examine(path: Path, compiler: str, work_dir: Path) -> OptimizedGraph:
    """Returns what a session on a file runs; opens one on the CPU in another process.

    Args:
      path: an ONNX file.
      compiler: which optimizations.
      work_dir: where the optimized graph is written meanwhile.

    Raises:
      RuntimeError: the process failed.
    """
    command = [sys.executable, "-P", "-m", __name__, str(path), compiler, str(work_dir)]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode:
        print(done.stderr, flush=True)
        said = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise RuntimeError(f"the optimized graph could not be written: {said}")
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return OptimizedGraph(
        exported=graph.GraphSummary(**told.pop("exported")),
        optimized=graph.GraphSummary(**told.pop("optimized")),
        **told,
    )


def main(path: Path, compiler: str, work_dir: Path) -> None:
    """Writes the optimized graph, prints as JSON what it is, and removes it."""
    from comparative_benchmark.onnxruntime import session

    model, weights = work_dir / _MODEL, work_dir / _WEIGHTS
    chosen = session.options(compiler, threads=1)
    chosen.optimized_model_filepath = str(model)
    for name, value in (
        (f"{_EXTERNAL}_file_name", weights.name),
        (f"{_EXTERNAL}_min_size_in_bytes", _SMALLEST_EXTERNAL_BYTES),
    ):
        chosen.add_session_config_entry(name, str(value))
    try:
        session.open_session(path, "cpu", chosen)
        written = graph.load(model)
        found = OptimizedGraph(
            exported=graph.summarize(graph.load(path)),
            optimized=graph.summarize(written),
            sha256=graph.fingerprint(written, work_dir),
            size_bytes=model.stat().st_size,
            weights_size_bytes=weights.stat().st_size if weights.exists() else 0,
        )
    finally:
        for file in (model, weights):
            file.unlink(missing_ok=True)
    print(json.dumps(attrs.asdict(found)))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
