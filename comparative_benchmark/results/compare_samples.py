"""What a record measured: its samples by process, its compile times, and what disturbed them.

Metrics may come from anywhere: what has another shape raises `SampleError` with the reason.
"""

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, TypeGuard

from comparative_benchmark.stats.resampling import SampleError

LATENCY, COLD_COMPILE = "latency", "cold compile"
# What `stop_reason` says of a record without latencies.
COMPILE_ONLY = "compile_only"


def quantity(metrics: Mapping[str, Any]) -> str:
    """Returns what the record measured: `LATENCY`, or `COLD_COMPILE` of a compile-only one."""
    return COLD_COMPILE if metrics.get("stop_reason") == COMPILE_ONLY else LATENCY


def process_samples(metrics: Mapping[str, Any]) -> list[list[float]]:
    """Returns the latencies of each process in ms, or raises `SampleError`."""
    blocks = _blocks(metrics)
    if blocks is None:
        return [_numbers(metrics, "latencies_ms")]
    return [
        [value for block in process for value in _numbers(block, "latencies_ms")]
        for process in blocks
    ]


def compile_samples(metrics: Mapping[str, Any]) -> list[list[float]]:
    """Returns the cold compile time of each process in ms, or raises `SampleError`."""
    return [[value] for value in _numbers(mapping(metrics, "compile"), "cold_ms")]


def compiles_nothing(metrics: Mapping[str, Any]) -> bool:
    """Tells whether a compile-only record says that there was nothing to compile, as in eager."""
    times = mapping(metrics, "compile").get("cold_ms")
    return isinstance(times, list) and all(value is None for value in times)


def paired_rounds(
    old: Mapping[str, Any], new: Mapping[str, Any]
) -> list[list[tuple[float, float]]] | None:
    """Returns (candidate, baseline) block medians by process and round; None if not one race."""
    races = [mapping(metrics, "race") for metrics in (old, new)]
    before, after = _blocks(old), _blocks(new)
    if before is None or after is None or races[0].get("id") != races[1].get("id"):
        return None
    if not all(race.get("id") and race.get("interleaved", True) for race in races):
        return None
    replicates = []
    for old_blocks, new_blocks in zip(before, after, strict=False):
        baseline, candidate = _round_medians(old_blocks), _round_medians(new_blocks)
        rounds = [(candidate[key], baseline[key]) for key in candidate if key in baseline]
        if rounds:
            replicates.append(rounds)
    return replicates or None


def contention(*sides: Mapping[str, Any]) -> str:
    """Says that most blocks were measured while others had the CPU; empty if not."""
    blocks = [b for metrics in sides for process in _blocks(metrics) or [] for b in process]
    share = sum(bool(block.get("contended")) for block in blocks) / max(len(blocks), 1)
    return f"; {share:.0%} of the blocks were measured under contention" if share > 0.5 else ""


def mean_mhz(metrics: Mapping[str, Any]) -> float | None:
    """Returns the mean clock while the blocks ran; None where the system did not tell."""
    try:
        blocks = [block for process in _blocks(metrics) or [] for block in process]
    except SampleError:
        return None
    clocks = [mapping(block, "conditions").get("mean_mhz") for block in blocks]
    known = [clock for clock in clocks if is_positive(clock)]
    return sum(known) / len(known) if known else None


def quotient(new: Mapping[str, Any], old: Mapping[str, Any], *names: str) -> float | None:
    """Returns new / old of the first metric that both have as a positive finite number."""
    for name in names:
        above, below = new.get(name), old.get(name)
        if is_positive(above) and is_positive(below):
            return float(above) / float(below)
    return None


def is_positive(value: Any) -> TypeGuard[float]:
    """Tells whether a value is a number above zero that is safe to divide by."""
    # Between these limits every quotient is a finite number.
    return isinstance(value, (int, float)) and 1e-100 < value < 1e100


def mapping(holder: Any, name: str) -> Mapping[str, Any]:
    """Returns the mapping of that name; an empty one where there is none."""
    value = holder.get(name) if isinstance(holder, Mapping) else None
    return value if isinstance(value, Mapping) else {}


def listed(holder: Any, name: str) -> list[Any]:
    """Returns the list of that name; an empty one where there is none."""
    value = holder.get(name) if isinstance(holder, Mapping) else None
    return value if isinstance(value, list) else []


def _blocks(metrics: Mapping[str, Any]) -> list[list[Mapping[str, Any]]] | None:
    """Returns the blocks of each process; None where the record has no such layout."""
    processes = metrics.get("processes")
    if processes is None:
        return None
    if not isinstance(processes, list) or not processes:
        raise SampleError("no samples")
    blocks = [listed(process, "blocks") for process in processes]
    if not all(isinstance(block, Mapping) for process in blocks for block in process):
        raise SampleError("blocks of another shape")
    return blocks


def _round_medians(blocks: Iterable[Mapping[str, Any]]) -> dict[Any, float]:
    rounds: defaultdict[Any, list[float]] = defaultdict(list)
    for block in blocks:
        if isinstance(block.get("round"), int):
            rounds[block["round"]] += _numbers(block, "latencies_ms")
    # Ten times as fast as numpy for so few, and there are many; NaN were refused before.
    return {key: float(statistics.median(values)) for key, values in rounds.items() if values}


def _numbers(holder: Mapping[str, Any], name: str) -> list[float]:
    values = holder.get(name)
    if not isinstance(values, list) or not values:
        raise SampleError("no samples")
    if not all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in values):
        raise SampleError("a sample is no number")
    return values
