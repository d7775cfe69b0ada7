"""Measures the overhead of the timed loop for a model that takes 1 ms, and for an empty call.

`harness.sampling.measure_block` runs a fake backend, and a bare Python loop runs the same call. The
blocks alternate in shuffled order. There are two models of 1 ms: one waits until the clock has
advanced by 1 ms, the other does a fixed amount of Python work. Each has two figures, relative to a
call in the bare loop: the mean latency that the harness reports, and the wall time of an iteration.
Blocks are as long as in a race, and begin with an untimed iteration, also in the bare loop. The
result is the first decile over all blocks. It represents blocks without other processes on the CPU;
on a busy machine, any other statistic would measure the other processes.

Then a real worker runs the same empty call. The figures are the latency in a sample, the wall time
of an iteration while its block runs, and the time to send its sample after the block.

    python benchmarks/harness_overhead.py [--rounds 200] [--quick]
"""

import argparse
import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
from _empty import Empty
from _timing import print_goal, print_table
from _worker_trip import decile, worker_trip

from comparative_benchmark.backends.api import BackendContext
from comparative_benchmark.engine.worker.phases import PhaseClock
from comparative_benchmark.engine.worker.sampling import measure_block
from openxla.benchmark import devices

GOAL = 0.01
GOAL_NS = 1000
_TARGET_NS = 1_000_000
# Iterations of a block of 40 ms, which is the length of blocks in `SamplingRule`.
_ITERATIONS = 40


class Fake(Empty):
    """A backend whose model is a callable; a run is complete when the callable returns."""

    def __init__(self, call: Callable[[], object]) -> None:
        context = BackendContext(
            compiler="none",
            options=(),
            device=devices.ALL_DEVICES[0],
            threads=1,
            work_dir=Path(),
            phase=PhaseClock(lambda _: None),
        )
        super().__init__(context)
        self._call = call

    def dispatch(self) -> Any:
        """Calls."""
        return self._call()


@attrs.define
class Rounds:
    """Per round: time of a call in the bare loop, reported latency, wall time of an iteration."""

    bare_ns: list[float] = attrs.field(factory=list)
    reported_ns: list[float] = attrs.field(factory=list)
    wall_ns: list[float] = attrs.field(factory=list)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--rounds", type=int, default=200, help="number of block pairs to measure (default: 200)"
    )
    parser.add_argument("--quick", action="store_true", help="try the script with fifty rounds")
    options = parser.parse_args()
    rounds = 50 if options.quick else options.rounds

    rows, ratios = [], []
    for name, call in (("waits 1 ms", _wait), ("Python work, 1 ms", _work_of_1_ms())):
        measured = _measure(call, rounds=rounds, iterations=_ITERATIONS)
        bare = decile(measured.bare_ns)
        found = [decile(values) / bare for values in (measured.reported_ns, measured.wall_ns)]
        ratios += found
        rows.append([name, f"{bare / 1e3:.1f}", *(f"{value:.4f}" for value in found)])
    print_table(["model", "bare, us", "reported / bare", "wall / bare"], rows)

    empty = _measure(_nothing, rounds=max(rounds // 10, 10), iterations=20_000)
    bare, wall, reported = map(decile, (empty.bare_ns, empty.wall_ns, empty.reported_ns))
    print(
        f"empty call: {bare:.0f} ns in the bare loop, {wall:.0f} ns per iteration in the harness: "
        f"{wall - bare:.0f} ns added; a sample of it reads {reported:.0f} ns"
    )
    trip = worker_trip(rounds)
    print(
        f"empty call in a worker: a sample reads {trip.sample_ns:.0f} ns, an iteration takes "
        f"{trip.iteration_ns:.0f} ns; not timed: {trip.trip_ns / 1e3:.1f} us to send a sample, "
        f"{trip.command_ns / 1e3:.0f} us per block"
    )
    print_goal(
        "worker protocol and sampling add less than 1 us per iteration, while a block runs",
        met=max(wall - bare, trip.iteration_ns) < GOAL_NS,
        found=f"{max(wall - bare, trip.iteration_ns):.0f} ns",
    )
    worst = max(ratios, key=lambda value: abs(value - 1))
    print_goal(
        f"a 1 ms model within {GOAL:.0%}", met=abs(worst - 1) <= GOAL, found=f"{worst:.4f} x"
    )


def _measure(call: Callable[[], object], *, rounds: int, iterations: int) -> Rounds:
    """Alternates blocks of the harness and of the bare loop, in shuffled order."""
    backend, found = Fake(call), Rounds()
    choose = random.Random(0)
    for _ in range(rounds):
        for harness in choose.sample([True, False], 2):
            if harness:
                block = measure_block(backend, iterations, refresh=True)
                found.reported_ns.append(statistics.fmean(block.latencies_ms) * 1e6)
                found.wall_ns.append(block.wall_ms * 1e6 / iterations)
            else:
                call()
                found.bare_ns.append(_bare(call, iterations) / iterations)
    return found


def _bare(call: Callable[[], object], iterations: int) -> int:
    start = time.perf_counter_ns()
    for _ in range(iterations):
        call()
    return time.perf_counter_ns() - start


def _wait() -> None:
    end = time.perf_counter_ns() + _TARGET_NS
    while time.perf_counter_ns() < end:
        pass


def _work_of_1_ms() -> Callable[[], object]:
    """Returns a loop that takes about 1 ms on this machine."""
    count = 10_000
    fastest = min(_bare(lambda: _work(count), 1) for _ in range(50))
    count = count * _TARGET_NS // fastest
    return lambda: _work(count)


def _work(count: int) -> int:
    total = 0
    for index in range(count):
        total += index
    return total


def _nothing() -> None:
    pass


if __name__ == "__main__":
    main()
