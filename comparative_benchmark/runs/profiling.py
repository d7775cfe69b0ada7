"""Has a worker run its stack's profiler; whatever goes wrong is noted and costs nothing else."""

import statistics
from collections.abc import Sequence
from pathlib import Path

from comparative_benchmark.results.record import ProfileRecord
from comparative_benchmark.runs.messages import Profiled
from comparative_benchmark.runs.one_call import Callee
from comparative_benchmark.runs.session import SessionEnded

_PROFILED_MS = 1000.0
_MIN_ITERATIONS, _MAX_ITERATIONS = 3, 50


def iterations_for(latencies_ms: Sequence[float]) -> int:
    """Returns how many iterations take about a second, at least 3 and at most 50.

    Fewer show no pattern, more make traces that viewers open slowly. The profiler's own overhead is
    not known beforehand and comes on top.
    """
    median_ms = statistics.median(latencies_ms) if latencies_ms else _PROFILED_MS
    fitting = _MAX_ITERATIONS if median_ms <= 0 else int(_PROFILED_MS / median_ms)
    return min(max(fitting, _MIN_ITERATIONS), _MAX_ITERATIONS)


def take(session: Callee, directory: Path, latencies_ms: Sequence[float]) -> ProfileRecord:
    """Profiles a worker that has nothing more to measure.

    Args:
      session: of the worker, which may be gone afterwards: a profiler can crash or hang.
      directory: where the files go, absolute; made if need be.
      latencies_ms: measured ones, which decide how many iterations are profiled.
    """
    iterations = iterations_for(latencies_ms)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        answer = session.call(Profiled, directory=str(directory), iterations=iterations)
    except (SessionEnded, OSError) as error:
        return ProfileRecord(directory=str(directory), iterations=iterations, error=str(error))
    return ProfileRecord(directory=str(directory), files=answer.files, iterations=iterations)
