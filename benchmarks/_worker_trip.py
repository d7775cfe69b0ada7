"""Cost of an iteration in a real worker, and of sending its sample to the parent."""

import statistics
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from comparative_benchmark.engine.messages import Compiled, Loaded, Measured
from comparative_benchmark.engine.session import Limits, Session
from openxla.benchmark import devices

_SHORT, _LONG = 200, 2000


@attrs.frozen(kw_only=True)
class WorkerTrip:
    """Costs of an empty call in nanoseconds; first deciles over rounds.

    Attributes:
      sample_ns: reported latency of an empty call.
      iteration_ns: wall time of an iteration while its block runs: sampling, and the share of the
        worker's other threads.
      trip_ns: time per iteration after the block, to encode, send and decode its sample. No
        iteration is timed then.
      command_ns: rest of the time of a command.
    """

    sample_ns: float
    iteration_ns: float
    trip_ns: float
    command_ns: float


def worker_trip(rounds: int) -> WorkerTrip:
    """Starts a worker and returns the costs of empty calls in it."""
    samples: list[float] = []
    iterations: list[float] = []
    trips: dict[int, list[float]] = {_SHORT: [], _LONG: []}
    with tempfile.TemporaryDirectory(prefix="cbs-overhead-") as directory:
        session = Session(
            limits=Limits(),
            log_file=Path(directory) / "worker.log",
            environment={"PYTHONPATH": str(Path(__file__).resolve().parent)},
        )
        with session:
            session.call(Loaded, **_empty_trial(directory))
            session.call(Compiled)
            for _ in range(rounds):
                for count in (_SHORT, _LONG):
                    start = time.perf_counter_ns()
                    block = session.call(Measured, iterations=count).block
                    took = time.perf_counter_ns() - start
                    assert block.wall_ms is not None
                    wall_ns = block.wall_ms * 1e6
                    trips[count].append(took - wall_ns)
                samples.append(statistics.fmean(block.latencies_ms) * 1e6)
                iterations.append(wall_ns / _LONG)
    short, long = decile(trips[_SHORT]), decile(trips[_LONG])
    trip_ns = (long - short) / (_LONG - _SHORT)
    return WorkerTrip(
        sample_ns=decile(samples),
        iteration_ns=decile(iterations),
        trip_ns=trip_ns,
        command_ns=short - _SHORT * trip_ns,
    )


def decile(values: list[float]) -> float:
    """Returns the first decile, which represents rounds without other processes on the CPU."""
    return statistics.quantiles(values, n=10)[0]


def _empty_trial(work_dir: str) -> dict[str, Any]:
    context = {
        "compiler": "none",
        "options": [],
        "device": attrs.asdict(devices.HOST_CPU, value_serializer=_plain),
        "threads": 1,
        "work_dir": work_dir,
    }
    return {
        "implementation": "_empty:Empty",
        "context": context,
        "module_path": "_empty",
        "parameters": {},
        "inputs": [],
    }


def _plain(_: Any, __: Any, value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else value
