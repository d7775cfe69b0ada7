"""The graph that ONNX Runtime runs, as it writes it to a file.

In a child process: a second session and the written weights would count towards the memory of the
measured one, and writing towards its compile time.
"""

from pathlib import Path
from typing import Any

import attrs
import cattrs

from comparative_benchmark.backends import child_process
from comparative_benchmark.onnxruntime import graph

_MODEL, _WEIGHTS = "optimized.onnx", "optimized.onnx.data"
# Smaller weights stay in the file: most are constants of the graph.
_SMALLEST_EXTERNAL_BYTES = 1024
_EXTERNAL = "session.optimized_model_external_initializers"


@attrs.frozen(kw_only=True)
class OptimizedGraph:
    """ONNX Runtime's optimized version of a graph.

    Attributes:
      exported, optimized: operators of the graphs.
      sha256: identity of the optimized graph with its weights.
      size_bytes: size of the optimized graph, without its weights.
      weights_size_bytes: size of its weights; folding can make it smaller or larger than before.
    """

    exported: graph.GraphSummary
    optimized: graph.GraphSummary
    sha256: str
    size_bytes: int
    weights_size_bytes: int


def examine(path: Path, compiler: str, work_dir: Path) -> OptimizedGraph:
    """Returns the graph that a session on a file runs; opens one on the CPU in a child process.

    Args:
      path: an ONNX file.
      compiler: the compiler, which selects the optimizations.
      work_dir: directory for the optimized graph until it is read.

    Raises:
      RuntimeError: the process failed.
    """
    arguments = {"path": str(path), "compiler": compiler, "directory": str(work_dir)}
    told, _ = child_process.call(
        f"{__name__}:examine_here", arguments, name="the process that writes the optimized graph"
    )
    return cattrs.structure(told, OptimizedGraph)


def examine_here(
    _: child_process.Channel, path: str, compiler: str, directory: str
) -> dict[str, Any]:
    """Writes the optimized graph in this process, and removes it; see `examine`."""
    from comparative_benchmark.onnxruntime import session

    work_dir = Path(directory)
    model, weights = work_dir / _MODEL, work_dir / _WEIGHTS
    chosen = session.options(compiler, threads=1)
    chosen.optimized_model_filepath = str(model)
    for name, value in (
        (f"{_EXTERNAL}_file_name", weights.name),
        (f"{_EXTERNAL}_min_size_in_bytes", _SMALLEST_EXTERNAL_BYTES),
    ):
        chosen.add_session_config_entry(name, str(value))
    try:
        session.open_session(Path(path), "cpu", chosen)
        written = graph.load(model)
        found = OptimizedGraph(
            exported=graph.summarize(graph.load(Path(path))),
            optimized=graph.summarize(written),
            sha256=graph.fingerprint(written, work_dir),
            size_bytes=model.stat().st_size,
            weights_size_bytes=weights.stat().st_size if weights.exists() else 0,
        )
    finally:
        for file in (model, weights):
            file.unlink(missing_ok=True)
    return attrs.asdict(found)
