"""Tests that the check for implausible times does not flag honest programs.

The script has two parts. First, it checks every process in the given results files: samples against
their blocks, CPU time against CPUs, and latency against arithmetic. Then it simulates 5,000 trials
with blocks from those files. Values that only the parent can measure come from assumed
distributions, which are meant to be worse than a loaded machine and were not measured:

  delay     of a worker beyond its block: 2 ms on average, and in one block of five, 1 s on average
  CPU time  of a worker beyond its block: 3 ms on average, with a heavy tail
  new runs  1.5 times the median on average; two of three are held up, by 100 ms on average

    python benchmarks/plausible_times.py FILE... [--trials 5000]
"""

import argparse
import os
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from _timing import print_goal

from comparative_benchmark.analysis.verification.plausibility import (
    TimedBlock,
    clock_problem,
    enough_ms,
    fresh_run_problem,
    latency_problem,
)
from comparative_benchmark.results.record import Block, Metrics, Status
from comparative_benchmark.results.results_file import ResultsFile
from openxla.benchmark.models.architectures.base import DATA_TYPES

SEED = 5
FRESH_RUNS = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("files", nargs="+", type=Path, help="results files from honest programs")
    parser.add_argument("--trials", type=int, default=5000, help="simulated trials")
    options = parser.parse_args()
    processes, problems, skipped = [], [], 0
    for path in options.files:
        try:
            found = list(_processes(path))
        except Exception as error:
            print(f"omitted {path}: {type(error).__name__}: {error}")
            skipped += 1
            continue
        for name, blocks, problem in found:
            processes.append(blocks)
            if problem:
                problems.append(f"{path.name} {name}: {problem}")
    print(f"{len(processes)} processes in {len(options.files) - skipped} files")
    print("\n".join(problems[:20]))
    print_goal("no recorded process is flagged", met=not problems, found=str(len(problems)))
    if not processes:
        return
    flagged = _simulated(processes, options.trials)
    print("\n".join(flagged[:10]))
    print_goal(
        f"none of {options.trials} simulated trials is flagged",
        met=not flagged,
        found=str(len(flagged)),
    )


def _processes(path: Path) -> Iterator[tuple[str, tuple[Block, ...], str | None]]:
    for result in ResultsFile(path).results():
        if result.status is not Status.OK:
            continue
        metrics = result.metrics.framework_level or result.metrics.compiler_level
        assert metrics
        on_cpu = "host-cpu" in result.definition.device
        for process in metrics.processes or ():
            blocks = tuple(b for b in process.blocks if b.wall_ms and b.cpu_ms is not None)
            if blocks:
                yield (
                    result.definition.competitor,
                    blocks,
                    _problem(blocks, metrics if on_cpu else None, result.definition.precision),
                )


def _problem(blocks: Sequence[Block], metrics: Metrics | None, precision: str | None) -> str | None:
    """Returns the problem in the figures of a file, or None; files lack figures of the parent."""
    seen = [_timed(block, delay_ms=0.0, extra_cpu_ms=0.0) for block in blocks]
    cpus = os.cpu_count() or 1
    if metrics is None:
        return clock_problem(seen, cpus=1024)  # the file's machine may have more CPUs
    return clock_problem(seen, cpus) or latency_problem(
        [value for block in blocks for value in block.latencies_ms],
        flops=metrics.workload_cost.flops,
        weight_bytes=None,
        element_type=DATA_TYPES.get(str(precision), ""),
        cpus=cpus,
    )


def _timed(block: Block, *, delay_ms: float, extra_cpu_ms: float) -> TimedBlock:
    wall, cpu = block.wall_ms or 0.0, block.cpu_ms or 0.0
    iterations = len(block.latencies_ms)
    extra = len(block.device_ms)
    return TimedBlock(
        samples_ms=sum(block.latencies_ms),
        iterations=iterations,
        extra=extra,
        wall_ms=wall,
        cpu_ms=cpu,
        seen_ms=wall * (1 + extra / iterations) + delay_ms,
        seen_cpu_ms=cpu * (1 + extra / iterations) + extra_cpu_ms,
    )


def _simulated(processes: Sequence[Sequence[Block]], trials: int) -> list[str]:
    random = np.random.default_rng(SEED)
    found = []
    for _ in range(trials):
        blocks = processes[int(random.integers(len(processes)))]
        count = int(random.integers(1, len(blocks) + 1))
        seen = [
            _timed(
                block,
                delay_ms=random.exponential(2) + (random.random() < 0.2) * random.exponential(1000),
                extra_cpu_ms=3 * random.lognormal(-0.5, 1.0),
            )
            for block in blocks[:count]
        ]
        median_ms = statistics.median(v for block in blocks[:count] for v in block.latencies_ms)
        runs: list[float] = []
        while len(runs) < FRESH_RUNS and not (runs and runs[-1] <= enough_ms(median_ms)):
            held_up = (random.random() < 2 / 3) * random.exponential(100)
            runs.append(median_ms * random.lognormal(0.3, 0.5) + held_up)
        # The files' machine may have more CPUs, so that limit is not simulated.
        problem = clock_problem(seen, cpus=1024) or fresh_run_problem(median_ms, runs)
        if problem:
            found.append(problem)
    return found


if __name__ == "__main__":
    main()
