"""What a result measured: its samples by process, its compile times, and what disturbed them.

What cannot be analysed raises `SampleError` with the reason.
"""

import statistics
from collections import defaultdict
from collections.abc import Iterable
from typing import Any, TypeGuard

from comparative_benchmark.results.record import Block, Metrics
from comparative_benchmark.stats.analysis import MIN_PROCESSES, SampleError

# A trial of which a larger share of the blocks was contended supports no verdict.
_MOST_CONTENDED = 0.5


def samples_of(metrics: Metrics) -> list[list[float]]:
    """Returns the samples of each process in ms, of the quantity that was measured."""
    return compile_samples(metrics) if metrics.compile_only else process_samples(metrics)


def process_samples(metrics: Metrics) -> list[list[float]]:
    """Returns the latencies of each process in ms, or raises `SampleError`."""
    if metrics.processes:
        processes = [process.latencies_ms for process in metrics.processes]
        if all(processes):
            return processes
    elif metrics.latencies_ms:
        # Files of before processes were told apart.
        return [list(metrics.latencies_ms)]
    raise SampleError("no samples")


def compile_samples(metrics: Metrics) -> list[list[float]]:
    """Returns the cold compile time of each process in ms, or raises `SampleError`."""
    times = metrics.compile.cold_ms if metrics.compile else ()
    if not times:
        raise SampleError("no samples")
    if None in times:
        raise SampleError("a sample is not a number")
    return [[value] for value in times if value is not None]


def compiles_nothing(metrics: Metrics) -> bool:
    """Tells whether a compile-only result says that there was nothing to compile, as in eager."""
    times = metrics.compile.cold_ms if metrics.compile else (0.0,)
    return all(value is None for value in times)


def paired_rounds(old: Metrics, new: Metrics) -> list[list[tuple[float, float]]] | None:
    """Returns (candidate, baseline) block medians by process and round; None if not one race."""
    if not old.race.id or old.race.id != new.race.id:
        return None
    if not (old.race.interleaved and new.race.interleaved and old.processes and new.processes):
        return None
    replicates = []
    for old_process, new_process in zip(old.processes, new.processes, strict=False):
        baseline, candidate = (_round_medians(p.blocks) for p in (old_process, new_process))
        rounds = [(candidate[key], baseline[key]) for key in candidate if key in baseline]
        if rounds:
            replicates.append(rounds)
    # Where interruptions have set most replicates apart, all processes unpaired say more.
    fewest = min(MIN_PROCESSES, len(old.processes), len(new.processes))
    return replicates if replicates and len(replicates) >= fewest else None


def disturbance(baseline: Metrics, candidate: Metrics) -> str:
    """Says which side had others on its CPUs in more than half of its blocks; empty if none.

    Others slow programs down unequally, whatever the order of the blocks: one that uses all CPUs
    loses more than one that uses a single CPU.
    """
    for side, metrics in (("baseline", baseline), ("candidate", candidate)):
        blocks = _blocks(metrics)
        share = sum(bool(block.contended) for block in blocks) / max(len(blocks), 1)
        if share > _MOST_CONTENDED:
            return f"disturbed: other processes used the CPUs in {share:.0%} of the {side}'s blocks"
    return ""


def mean_mhz(metrics: Metrics) -> float | None:
    """Returns the mean clock while the blocks ran; None where the system did not tell."""
    clocks = [block.conditions.mean_mhz for block in _blocks(metrics) if block.conditions]
    known = [clock for clock in clocks if is_positive(clock)]
    return sum(known) / len(known) if known else None


def quotient(new: float | None, old: float | None) -> float | None:
    """Returns new / old; None where one of them is missing or not positive."""
    return new / old if is_positive(new) and is_positive(old) else None


def is_positive(value: Any) -> TypeGuard[float]:
    """Tells whether a value is a number above zero that is safe to divide by."""
    # Between these limits every quotient is a finite number.
    return isinstance(value, (int, float)) and 1e-100 < value < 1e100


def _blocks(metrics: Metrics) -> list[Block]:
    return [block for process in metrics.processes or () for block in process.blocks]


def _round_medians(blocks: Iterable[Block]) -> dict[int, float]:
    rounds: defaultdict[int, list[float]] = defaultdict(list)
    for block in blocks:
        if block.round is not None:
            rounds[block.round] += block.latencies_ms
    # Ten times as fast as numpy for so few, and there are many.
    return {key: float(statistics.median(values)) for key, values in rounds.items()}
